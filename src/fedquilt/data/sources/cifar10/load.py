"""CIFAR-10 (A. Krizhevsky, 2009): 60,000 small photographs of ten classes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from fedquilt.data.published.origin import Origin, PublishedSource
from fedquilt.data.published.prepared import prepare_arrays
from fedquilt.data.source import Splits, single_label_splits
from fedquilt.data.sources.cifar10.files import ORIGIN, find_files, read_files

CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)


@dataclass(frozen=True, kw_only=True)
class Cifar10(PublishedSource):
    """Colour images of 32 px with one-hot labels of ten classes."""

    origin: ClassVar[Origin] = ORIGIN

    def load(self, cache: Path) -> Splits:
        files = find_files(self.root)
        arrays = prepare_arrays(cache, "cifar10", files, {"version": 1}, lambda: read_files(files))
        return single_label_splits(arrays, CLASSES)
