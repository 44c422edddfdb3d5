"""Arrays of a published data set, made once from its files and memory-mapped ever after.

The folder's name holds a hash of the files' names, sizes and times and of the settings, so a
changed file or setting makes a new folder. Only a complete folder gets its name.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedquilt.core.atomic_files import write_json
from fedquilt.core.errors import UserError
from fedquilt.data.images.cache import open_mapped, writing

LAYOUT_VERSION = 1  # to be raised when the files here change, so that older ones are not used
MANIFEST = "arrays.json"

# Rows to append to the array of that name; all rows of an array have one shape.
Chunks: TypeAlias = Iterable[tuple[str, NDArray[np.uint8]]]


def prepared(
    cache: Path,
    name: str,
    files: Sequence[Path],
    settings: Mapping[str, Any],
    make: Callable[[], Chunks],
) -> dict[str, Tensor]:
    """The uint8 arrays that ``make`` yields piece by piece, made only if the cache lacks them.

    Args:
        name: begins the name of the folder in the cache, for people.
        files: what the arrays are made of.
        settings: all else that decides them; plain values, as in JSON. Add a number to raise
            whenever ``make`` changes its result.
    """
    home = cache / f"{name}-{_key(files, settings)}"
    arrays = _open(home)
    if arrays is None:
        with writing(home.with_name(f"{home.name}.lock")):
            arrays = _open(home)  # another run may have made it meanwhile
            if arrays is None:
                _write(home, make)
                arrays = _open(home)
    if arrays is None:
        raise UserError(f"{home} was changed while it was written; remove it and try again")
    return arrays


def _key(files: Sequence[Path], settings: Mapping[str, Any]) -> str:
    status = [(path.name, path.stat()) for path in files]
    facts = [[name, each.st_size, each.st_mtime_ns] for name, each in status]
    text = json.dumps([LAYOUT_VERSION, dict(settings), facts], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def _open(home: Path) -> dict[str, Tensor] | None:
    """The arrays of a whole folder; ``None`` where there is none, or part of it is gone."""
    try:
        shapes = json.loads((home / MANIFEST).read_text(encoding="utf-8"))
        if any(_file(home, name).stat().st_size != math.prod(shapes[name]) for name in shapes):
            return None
    except (OSError, ValueError):
        return None
    return {name: open_mapped(_file(home, name)).view(shape) for name, shape in shapes.items()}


def _file(home: Path, name: str) -> Path:
    return home / f"{name}.u8"


def _write(home: Path, make: Callable[[], Chunks]) -> None:
    part = home.with_name(f"{home.name}.part")
    for leftover in (part, home):
        shutil.rmtree(leftover, ignore_errors=True)
    part.mkdir()
    try:
        write_json(part / MANIFEST, _append_all(part, make()))
        part.replace(home)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _append_all(part: Path, chunks: Chunks) -> dict[str, list[int]]:
    """Write each array's rows one after another; its shape is known once all have come."""
    shapes: dict[str, list[int]] = {}
    with ExitStack() as stack:
        outs: dict[str, BinaryIO] = {}
        for name, rows in chunks:
            if name not in outs:
                outs[name] = stack.enter_context(_file(part, name).open("wb"))
                shapes[name] = [0, *rows.shape[1:]]
            if rows.dtype != np.uint8 or list(rows.shape[1:]) != shapes[name][1:]:
                raise ValueError(
                    f"rows of {name!r} must be uint8 of shape {shapes[name][1:]}, found "
                    f"{rows.dtype} of shape {list(rows.shape[1:])}"
                )
            outs[name].write(np.ascontiguousarray(rows).data)
            shapes[name][0] += len(rows)
    return shapes
