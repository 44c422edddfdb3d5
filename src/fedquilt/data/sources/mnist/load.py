"""MNIST (Y. LeCun et al., 1998): 70,000 handwritten digits, from its idx files."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedquilt.data.published.origin import Origin, PublishedSource
from fedquilt.data.published.prepared import Chunks, prepare_arrays
from fedquilt.data.source import Splits, single_label_splits

CLASSES = tuple(f"digit {digit}" for digit in range(10))
ORIGIN = Origin(
    "MNIST", "the MNIST page of Y. LeCun, C. Cortes and C. J. C. Burges, or one of its mirrors"
)
FILES = {
    "train_images": "train-images-idx3-ubyte",
    "train_targets": "train-labels-idx1-ubyte",
    "test_images": "t10k-images-idx3-ubyte",
    "test_targets": "t10k-labels-idx1-ubyte",
}
COUNTS = {"train": 60_000, "test": 10_000}
SUBFOLDERS = (".", "raw", "MNIST/raw")  # the last two are torchvision's


@dataclass(frozen=True, kw_only=True)
class Mnist(PublishedSource):
    """Grey images of 28 px with one-hot labels of ten digits."""

    origin: ClassVar[Origin] = ORIGIN

    def load(self, cache: Path) -> Splits:
        files = find_files(self.root)
        arrays = prepare_arrays(cache, "mnist", files, {"version": 1}, lambda: read_files(files))
        return single_label_splits(arrays, CLASSES)


def find_files(folder: Path) -> list[Path]:
    """The four files in the order of ``FILES``, gzipped or not."""
    first = FILES["train_images"]
    candidates = [folder / subfolder for subfolder in SUBFOLDERS]
    found = next((each for each in candidates if any(each.glob(f"{first}*"))), folder)
    return [ORIGIN.find(found, name, f"{name}.gz") for name in FILES.values()]


def read_files(files: list[Path]) -> Chunks:
    """``train_images`` (N, 1, 28, 28), ``train_targets`` (N,), and the same for test."""
    for name, path in zip(FILES, files):
        count = COUNTS[name.partition("_")[0]]
        if name.endswith("images"):
            yield name, _read(path, (count, 28, 28))[:, None]
        else:
            targets = _read(path, (count,))
            if targets.max() > 9:
                raise ORIGIN.wrong(path, f"holds the digit {targets.max()}", "digits 0 to 9")
            yield name, targets


def _read(path: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Read an idx file: bytes 0, 0, 8, the number of axes, their lengths (big-endian), values."""
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise ORIGIN.wrong(path, f"cannot be read ({error})", "a complete file") from error
    header = bytes((0, 0, 8, len(shape))) + np.array(shape, ">u4").tobytes()
    size = len(header) + int(np.prod(shape))
    if not content.startswith(header) or len(content) != size:
        found = f"has {len(content):,} bytes and begins with {content[: len(header)].hex()}"
        raise ORIGIN.wrong(path, found, f"{size:,} bytes that begin with {header.hex()}")
    return np.frombuffer(content, np.uint8, offset=len(header)).reshape(shape)
