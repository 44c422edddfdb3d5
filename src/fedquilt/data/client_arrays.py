"""Arrays of many clients in one npz file, written and read a client at a time. Needs no torch."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray


def write_client_arrays(
    file: BinaryIO,
    texts: Mapping[str, str],
    arrays: Mapping[str, Sequence[NDArray[np.generic]]],
) -> None:
    """Write an npz file of texts, and of arrays that are each client's rows one after another."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in texts.items():
            with archive.open(f"{name}.npy", "w") as member:
                npy.write_array(member, np.array(text), allow_pickle=False)
        for name, parts in arrays.items():
            rows = sum(map(len, parts))
            header = npy.header_data_from_array_1_0(parts[0][:0])
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                npy.write_array_header_1_0(member, {**header, "shape": (rows, *parts[0].shape[1:])})
                for part in parts:
                    member.write(part.tobytes())


def read_client_arrays(
    file: zipfile.ZipFile, name: str, sizes: Sequence[int]
) -> Iterator[NDArray[np.generic]]:
    """Yield the rows of each client; raise ValueError if there are not so many."""
    with file.open(f"{name}.npy") as member:
        if npy.read_magic(member) != (1, 0):
            raise ValueError(f"{name} has another format than 1.0")
        shape, is_fortran, dtype = npy.read_array_header_1_0(member)
        if dtype.hasobject or is_fortran or not shape or shape[0] != sum(sizes):
            raise ValueError(f"{name} does not have one plain row per image")
        row_bytes = dtype.itemsize * math.prod(shape[1:])
        for size in sizes:
            content = member.read(size * row_bytes)
            yield np.frombuffer(content, dtype).reshape(size, *shape[1:])
        if member.read(1):  # also compares the checksum
            raise ValueError(f"{name} goes on behind its last row")


def names_by_class(
    names: Sequence[str], classes: Sequence[str], annotated: NDArray[np.bool_]
) -> dict[str, list[str]]:
    """Return for every class the clients that annotate it; ``annotated`` is (K, C).

    Classes that the same clients annotate share one list.
    """
    found: dict[bytes, list[str]] = {}
    by_class = {}
    for label, column in zip(classes, np.ascontiguousarray(annotated.T)):
        key = column.tobytes()
        if key not in found:
            found[key] = [names[place] for place in np.flatnonzero(column).tolist()]
        by_class[label] = found[key]
    return by_class
