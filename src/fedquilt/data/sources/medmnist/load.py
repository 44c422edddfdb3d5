"""MedMNIST (J. Yang et al., Scientific Data 2023): small medical images of 18 kinds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, TypeAlias

from fedquilt.core.errors import UserError, nearest
from fedquilt.data.published.origin import Origin, PublishedSource
from fedquilt.data.published.prepared import prepared
from fedquilt.data.source import Splits, complete_part, numbered
from fedquilt.data.sources.medmnist.files import ORIGIN, PARTS, find_file, read_file
from fedquilt.data.sources.medmnist.table import TASKS

Validation: TypeAlias = Literal["train", "drop"]


@dataclass(frozen=True, kw_only=True)
class MedMnist(PublishedSource):
    """One of its sets; a single class, or a grade, is a vector with a single 1.

    A volume is an image with as many channels as it has slices.
    """

    flag: str  # the file's name, such as chestmnist
    size: int = 28  # pixels: 28, 64, 128 or 224, each a file of its own; of volumes 28 or 64
    validation: Validation = "train"  # where the published validation images go
    origin: ClassVar[Origin] = ORIGIN

    def __post_init__(self) -> None:
        if self.flag not in TASKS:
            raise UserError(f"MedMNIST has no {self.flag!r}{nearest(self.flag, TASKS)}")
        sizes = TASKS[self.flag].sizes
        if self.size not in sizes:
            raise UserError(
                f"size is {self.size}; {self.flag} comes in {', '.join(map(str, sizes))}"
            )

    def load(self, cache: Path) -> Splits:
        path = find_file(self.root, self.flag, self.size)
        settings = {"flag": self.flag, "version": 1}
        arrays = prepared(
            cache, path.stem, [path], settings, lambda: read_file(path, self.flag, self.size)
        )
        counts = arrays["parts"].bincount(minlength=len(PARTS)).tolist()
        ids = tuple(name for part, count in zip(PARTS, counts) for name in numbered(part, count))
        # Train, validation and test images lie in this order: each part is a slice, not a copy.
        train_stop = counts[0] + (counts[1] if self.validation == "train" else 0)
        test_start = counts[0] + counts[1]
        train, test = (
            complete_part(
                arrays["images"][rows],
                arrays["labels"][rows],
                TASKS[self.flag].classes,
                ids[rows],
            )
            for rows in (slice(train_stop), slice(test_start, None))
        )
        return Splits(train=train, test=test)
