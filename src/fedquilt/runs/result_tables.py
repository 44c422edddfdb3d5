"""Results of many clients or sites: a small ``result.json``, and a binary table beside it.

A table holds what the same keys lead to for every client, so class names and keys are written once.
Whoever reads a result through :func:`with_tables` sees no difference. Needs no torch.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from fedquilt.core.atomic_files import write_bytes, write_json
from fedquilt.core.errors import UserError
from fedquilt.core.parsed_text import UNREADABLE, parse_json

Place: TypeAlias = tuple[str, ...]  # names that lead to a leaf

LARGE = 5000  # numbers; with more, they are written as a table
PLACES = (("annotation_status", "clients"), ("by_site", "reports"), ("by_site", "intervals"))
TABLE = "table"  # the only key of what stands in ``result.json`` for a table
NEEDED = ("method", "rounds", "metrics")  # in every result


def write_result(path: Path, result: Mapping[str, Any]) -> None:
    """Write a result as JSON, with tables in the folder ``tables`` beside it where it is large."""
    small = dict(result)
    for block, name in PLACES:
        rows = small.get(block, {}).get(name)
        if not rows or len(rows) * _size(next(iter(rows.values()))) <= LARGE:
            continue
        columns = _columns(rows)
        if _is_table(columns, len(rows)):
            file = f"tables/{block}_{name}.npz"
            (path.parent / "tables").mkdir(exist_ok=True)
            write_bytes(path.parent / file, _packed(list(rows), columns))
            small[block] = {**small[block], name: {TABLE: file}}
    write_json(path, small)


def read_result(stored: Any, folder: Path) -> dict[str, Any]:
    """Return the content of ``result.json`` with its tables; raise UserError if it is damaged."""
    missing = [name for name in NEEDED if not isinstance(stored, dict) or name not in stored]
    if missing:
        raise UserError(
            f"{folder / 'result.json'} is damaged: it has no {', '.join(missing)}; "
            f"write it again with: fedquilt run --out {folder} --resume"
        )
    return with_tables(stored, folder)


def with_tables(result: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return a stored result with its tables in place."""
    whole = dict(result)
    for block, name in PLACES:
        stored = whole.get(block, {}).get(name)
        if isinstance(stored, dict) and stored.keys() == {TABLE}:
            whole[block] = {**whole[block], name: unpack(folder / stored[TABLE])}
    return whole


def _packed(names: list[str], columns: Mapping[Place, list[Any]]) -> bytes:
    """Return an npz file of rows of equal structure: an array for every number or list of them."""
    same, arrays = {}, {}
    written = {json.dumps(path): values for path, values in columns.items()}
    for path, values in written.items():
        if all(value == values[0] for value in values):
            same[path] = values[0]
        else:
            arrays[path] = np.array([_numbers(value) for value in values], dtype=np.float64)
    kinds = {path: "int" if _is_whole(written[path]) else "float" for path in arrays}
    header = {"rows": names, "paths": list(written), "same": same, "kinds": kinds}
    file = io.BytesIO()
    named: dict[str, Any] = {f"column_{n}": array for n, array in enumerate(arrays.values())}
    np.savez_compressed(file, header=np.array(json.dumps(header)), **named)
    return file.getvalue()


def unpack(path: Path) -> dict[str, Any]:
    """Return the rows that were written as a table."""
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            header = parse_json(str(file["header"]))
            arrays = {name: file[f"column_{number}"] for number, name in enumerate(header["kinds"])}
        rows: dict[str, Any] = {row: {} for row in header["rows"]}
        for name in header["paths"]:
            values = [header["same"].get(name)] * len(rows)
            if name in arrays:
                values = _plain(arrays[name].tolist(), header["kinds"][name])
            *parents, key = parse_json(name)
            for branch, value in zip(rows.values(), values, strict=True):
                for parent in parents:
                    branch = branch.setdefault(parent, {})
                branch[key] = value
    except UNREADABLE as error:
        raise UserError(
            f"{path} is damaged or missing ({error}); "
            f"write it again with: fedquilt run --out {path.parent.parent} --resume"
        ) from error
    return rows


def _columns(rows: Mapping[str, Any]) -> dict[Place, list[Any]]:
    """Return by path the leaf of every row that has one."""
    columns: dict[Place, list[Any]] = {}
    for tree in rows.values():
        for path, leaf in _leaves(tree, ()):
            columns.setdefault(path, []).append(leaf)
    return columns


def _leaves(tree: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(tree, Mapping):
        for key, branch in tree.items():
            yield from _leaves(branch, (*path, key))
    else:
        yield path, list(tree) if isinstance(tree, tuple) else tree


def _is_table(columns: Mapping[Place, list[Any]], rows: int) -> bool:
    """Whether all rows have the same paths, and numbers of the same shape where they differ."""
    for values in columns.values():
        if len(values) != rows:
            return False
        if all(value == values[0] for value in values):
            continue
        lengths = {len(value) if isinstance(value, list) else None for value in values}
        if len(lengths) > 1 or not all(map(_is_numeric, values)):
            return False
    return True


def _is_numeric(value: Any) -> bool:
    if isinstance(value, list):
        return all(not isinstance(each, list) and _is_numeric(each) for each in value)
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def _is_whole(values: list[Any]) -> bool:
    flat = (each for value in values for each in (value if isinstance(value, list) else [value]))
    return all(isinstance(each, int) for each in flat)


def _numbers(value: Any) -> Any:
    """None becomes NaN, which JSON does not have and so no result."""
    if isinstance(value, list):
        return [_numbers(each) for each in value]
    return np.nan if value is None else value


def _plain(value: Any, kind: str) -> Any:
    if isinstance(value, list):
        return [_plain(each, kind) for each in value]
    if value != value:
        return None
    return int(value) if kind == "int" else value


def _size(tree: Any) -> int:
    return sum(len(leaf) if isinstance(leaf, list) else 1 for _, leaf in _leaves(tree, ()))
