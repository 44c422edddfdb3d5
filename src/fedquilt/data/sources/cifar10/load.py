"""CIFAR-10 (A. Krizhevsky, 2009): 60,000 small photographs of ten kinds of things."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from fedquilt.data.published.origin import Origin, PublishedSource
from fedquilt.data.published.prepared import prepared
from fedquilt.data.source import Splits, single_label_splits
from fedquilt.data.sources.cifar10.files import ORIGIN, find_files, read_files

CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)


@dataclass(frozen=True, kw_only=True)
class Cifar10(PublishedSource):
    """One label an image, as a vector of ten with a single 1; 32 px, colour."""

    origin: ClassVar[Origin] = ORIGIN

    def load(self, cache: Path) -> Splits:
        files = find_files(self.root)
        arrays = prepared(cache, "cifar10", files, {"version": 1}, lambda: read_files(files))
        return single_label_splits(arrays, CLASSES)
