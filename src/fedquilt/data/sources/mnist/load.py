"""MNIST (Y. LeCun et al., 1998): 70,000 handwritten digits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from fedquilt.data.published.origin import Origin, PublishedSource
from fedquilt.data.published.prepared import prepare_arrays
from fedquilt.data.source import Splits, single_label_splits
from fedquilt.data.sources.mnist.files import ORIGIN, find_files, read_files

CLASSES = tuple(f"digit {digit}" for digit in range(10))


@dataclass(frozen=True, kw_only=True)
class Mnist(PublishedSource):
    """Grey images of 28 px with one-hot labels of ten digits."""

    origin: ClassVar[Origin] = ORIGIN

    def load(self, cache: Path) -> Splits:
        files = find_files(self.root)
        arrays = prepare_arrays(cache, "mnist", files, {"version": 1}, lambda: read_files(files))
        return single_label_splits(arrays, CLASSES)
