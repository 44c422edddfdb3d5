"""Read an array of an ``.npz`` file in chunks of rows: the file may be larger than the memory."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray


@dataclass(frozen=True)
class NpzArray:
    """One array of an ``.npz`` file."""

    path: Path
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    is_column_major: bool

    def rows(self, chunk: int) -> Iterator[NDArray[Any]]:
        """Yield the rows in order, ``chunk`` at a time."""
        if self.is_column_major:  # rows are not contiguous in the file
            with self.path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                whole = file[self.name]
            yield from (whole[start : start + chunk] for start in range(0, len(whole), chunk))
            return
        with zipfile.ZipFile(self.path) as archive, _opened(archive, self.name) as file:
            _read_header(file)
            for start in range(0, self.shape[0], chunk):
                count = min(chunk, self.shape[0] - start)
                wanted = (count, *self.shape[1:])
                size = int(np.prod(wanted)) * self.dtype.itemsize
                content = file.read(size)
                if len(content) != size:
                    raise ValueError(f"{self.name} ends after {start} of {self.shape[0]} rows")
                yield np.frombuffer(content, self.dtype).reshape(wanted)
            file.read(1)  # reading to the end verifies the checksum


@contextmanager
def _opened(archive: zipfile.ZipFile, name: str) -> Iterator[IO[bytes]]:
    with closing(archive.open(f"{name}.npy")) as file:
        yield file


def npz_array(path: Path, name: str) -> NpzArray:
    """Read an array's header; raise ``ValueError`` if it does not hold plain numbers."""
    with zipfile.ZipFile(path) as archive, _opened(archive, name) as file:
        shape, is_column_major, dtype = _read_header(file)
    if dtype.hasobject or dtype.kind not in "biuf":
        raise ValueError(f"{name} holds {dtype}, expected numbers")
    return NpzArray(path, name, shape, dtype, is_column_major and len(shape) > 1)


def _read_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = npy_format.read_magic(file)
    if version == (1, 0):
        return npy_format.read_array_header_1_0(file)
    if version == (2, 0):
        return npy_format.read_array_header_2_0(file)
    raise ValueError(f"unknown version of the npy format: {version}; expected 1.0 or 2.0")
