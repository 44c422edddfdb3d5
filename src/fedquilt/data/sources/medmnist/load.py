"""MedMNIST (J. Yang et al., Scientific Data 2023): 18 sets of small medical images."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, TypeAlias

from fedquilt.core.errors import UserError, nearest
from fedquilt.data.published.origin import Origin, PublishedSource
from fedquilt.data.published.prepared import prepare_arrays
from fedquilt.data.source import Splits, complete_dataset, numbered_ids
from fedquilt.data.sources.medmnist.files import ORIGIN, SPLITS, find_file, read_file
from fedquilt.data.sources.medmnist.table import TASKS

Validation: TypeAlias = Literal["train", "drop"]


@dataclass(frozen=True, kw_only=True)
class MedMnist(PublishedSource):
    """One of the MedMNIST sets; a single class or grade becomes a one-hot label vector.

    The slices of a volume are the channels of an image.
    """

    flag: str  # the set's name, such as chestmnist
    size: int = 28  # pixels: 28, 64, 128 or 224, each in its own file; 28 or 64 for volumes
    validation: Validation = "train"  # the published validation images train, or are dropped
    origin: ClassVar[Origin] = ORIGIN

    def __post_init__(self) -> None:
        if self.flag not in TASKS:
            raise UserError(f"MedMNIST has no {self.flag!r}{nearest(self.flag, TASKS)}")
        sizes = TASKS[self.flag].sizes
        if self.size not in sizes:
            raise UserError(
                f"size is {self.size}; expected one of {', '.join(map(str, sizes))} for {self.flag}"
            )

    def load(self, cache: Path) -> Splits:
        path = find_file(self.root, self.flag, self.size)
        settings = {"flag": self.flag, "version": 1}
        arrays = prepare_arrays(
            cache, path.stem, [path], settings, lambda: read_file(path, self.flag, self.size)
        )
        counts = arrays["parts"].bincount(minlength=len(SPLITS)).tolist()
        ids = tuple(
            name for split, count in zip(SPLITS, counts) for name in numbered_ids(split, count)
        )
        # The arrays hold train, val and test in this order, so each split is a slice, not a copy.
        train_stop = counts[0] + (counts[1] if self.validation == "train" else 0)
        test_start = counts[0] + counts[1]
        train, test = (
            complete_dataset(
                arrays["images"][rows],
                arrays["labels"][rows],
                TASKS[self.flag].classes,
                ids[rows],
            )
            for rows in (slice(train_stop), slice(test_start, None))
        )
        return Splits(train=train, test=test)
