"""Arrays of a published data set: made once from its files, then memory-mapped.

The name of a cache folder contains a hash of the settings and of the files' names, sizes and
modification times, so that a changed file or setting makes a new folder. A folder is renamed to
its final name once it is complete.
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
from fedquilt.core.parsed_text import parse_json
from fedquilt.data.images.cache import cache_lock, open_mapped

LAYOUT_VERSION = 1  # raise it when the layout changes, so that older folders are not used
MANIFEST = "arrays.json"

# (array name, rows to append to it); all rows of an array have the same shape.
Chunks: TypeAlias = Iterable[tuple[str, NDArray[np.uint8]]]


def prepare_arrays(
    cache: Path,
    name: str,
    files: Sequence[Path],
    settings: Mapping[str, Any],
    make: Callable[[], Chunks],
) -> dict[str, Tensor]:
    """Memory-map the uint8 arrays that ``make`` yields in chunks; call ``make`` if needed.

    Args:
        cache: the cache folder.
        name: prefix of the folder's name in the cache.
        files: the files that the arrays are made from.
        settings: everything else that the arrays depend on, as JSON values. Include a version
            number and raise it whenever ``make`` changes its result.
        make: yields the arrays in chunks.
    """
    folder = cache / f"{name}-{_key(files, settings)}"
    arrays = _open(folder)
    if arrays is None:
        with cache_lock(folder.with_name(f"{folder.name}.lock")):
            arrays = _open(folder)  # another run may have made it in the meantime
            if arrays is None:
                _write(folder, make)
                arrays = _open(folder)
    if arrays is None:
        raise UserError(f"{folder} was changed while it was written; remove it and try again")
    return arrays


def _key(files: Sequence[Path], settings: Mapping[str, Any]) -> str:
    status = [(path.name, path.stat()) for path in files]
    facts = [[name, each.st_size, each.st_mtime_ns] for name, each in status]
    text = json.dumps([LAYOUT_VERSION, dict(settings), facts], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def _open(folder: Path) -> dict[str, Tensor] | None:
    """The arrays of a complete folder; ``None`` if it does not exist or is incomplete."""
    try:
        shapes = parse_json((folder / MANIFEST).read_text(encoding="utf-8"))
        if any(_file(folder, name).stat().st_size != math.prod(shapes[name]) for name in shapes):
            return None
    except (OSError, ValueError):
        return None
    return {name: open_mapped(_file(folder, name)).view(shape) for name, shape in shapes.items()}


def _file(folder: Path, name: str) -> Path:
    return folder / f"{name}.u8"


def _write(folder: Path, make: Callable[[], Chunks]) -> None:
    partial = folder.with_name(f"{folder.name}.part")
    for leftover in (partial, folder):
        shutil.rmtree(leftover, ignore_errors=True)
    partial.mkdir()
    try:
        write_json(partial / MANIFEST, _append_all(partial, make()))
        partial.replace(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _append_all(folder: Path, chunks: Chunks) -> dict[str, list[int]]:
    """Append the chunks to their arrays' files; return the shapes of the arrays."""
    shapes: dict[str, list[int]] = {}
    with ExitStack() as stack:
        outs: dict[str, BinaryIO] = {}
        for name, rows in chunks:
            if name not in outs:
                outs[name] = stack.enter_context(_file(folder, name).open("wb"))
                shapes[name] = [0, *rows.shape[1:]]
            if rows.dtype != np.uint8 or list(rows.shape[1:]) != shapes[name][1:]:
                raise ValueError(
                    f"rows of {name!r} must be uint8 of shape {shapes[name][1:]}, found "
                    f"{rows.dtype} of shape {list(rows.shape[1:])}"
                )
            outs[name].write(np.ascontiguousarray(rows).data)
            shapes[name][0] += len(rows)
    return shapes
