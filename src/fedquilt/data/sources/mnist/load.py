"""MNIST (Y. LeCun et al., 1998): 70,000 handwritten digits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from fedquilt.data.published.origin import Origin, PublishedSource
from fedquilt.data.published.prepared import prepared
from fedquilt.data.source import Splits, single_label_splits
from fedquilt.data.sources.mnist.files import ORIGIN, find_files, read_files

CLASSES = tuple(f"digit {digit}" for digit in range(10))


@dataclass(frozen=True, kw_only=True)
class Mnist(PublishedSource):
    """One label an image, as a vector of ten with a single 1; 28 px, grey."""

    origin: ClassVar[Origin] = ORIGIN

    def load(self, cache: Path) -> Splits:
        files = find_files(self.root)
        arrays = prepared(cache, "mnist", files, {"version": 1}, lambda: read_files(files))
        return single_label_splits(arrays, CLASSES)
