"""PASCAL VOC 2007 and 2012: photographs with any of twenty kinds of objects."""

from __future__ import annotations

from dataclasses import dataclass, replace
from glob import escape
from pathlib import Path
from typing import ClassVar, Literal, TypeAlias, get_args

import numpy as np

from fedquilt.core.errors import UserError
from fedquilt.data.images.decoding import Decoding, Fit
from fedquilt.data.images.index import ImageFolders
from fedquilt.data.published.image_table import (
    ImageTable,
    SplitIndices,
    join_tables,
    load_image_splits,
)
from fedquilt.data.published.origin import Origin, PublishedImages
from fedquilt.data.published.settings import check_image_settings, check_one_of
from fedquilt.data.source import Splits
from fedquilt.data.sources.pascal_voc.labels import read_image_set

Year: TypeAlias = Literal[2007, 2012]
ImageSet: TypeAlias = Literal["train", "val", "trainval", "test"]
Difficult: TypeAlias = Literal["unknown", "present", "absent"]

# The labels of the test images of 2012 were never published.
DEFAULT_SETS: dict[int, tuple[ImageSet, ImageSet]] = {
    2007: ("trainval", "test"),
    2012: ("train", "val"),
}


@dataclass(frozen=True, kw_only=True)
class PascalVoc(PublishedImages):
    """Objects in photographs; a class with only "difficult" objects counts as not annotated."""

    year: Year = 2007
    train: ImageSet | None = None  # a list of the devkit; trainval in 2007, train in 2012
    test: ImageSet | None = None  # test in 2007, val in 2012
    difficult: Difficult = "unknown"  # the label of a class with only difficult objects
    size: int = 224  # pixels per side
    fit: Fit = "squash"  # the photographs' longer side is 500

    origin: ClassVar[Origin] = Origin(
        "PASCAL VOC",
        "the PASCAL Visual Object Classes pages of Oxford's robotics group (host.robots.ox.ac.uk): "
        "the training/validation archive of the year, for 2007 also the test archive, unpacked",
    )

    def __post_init__(self) -> None:
        if self.year not in DEFAULT_SETS:
            raise UserError(f"year is {self.year}; expected 2007 or 2012")
        for field, image_set in (("train", self.train), ("test", self.test)):
            if image_set is not None:
                check_one_of(field, image_set, get_args(ImageSet))
        check_one_of("difficult", self.difficult, get_args(Difficult))
        check_image_settings(self.size, self.fit)

    def load(self, cache: Path) -> Splits:
        table, indices = self.labels()
        decoding = Decoding(self.size, 3, self.fit)
        devkits = self.devkits
        root = devkits[0] if len(devkits) == 1 else self.root
        folders = ImageFolders(
            self.origin,
            root,
            tuple(escape(str((each / "JPEGImages").relative_to(root))) for each in devkits),
            "them in JPEGImages/",
            elsewhere="**/JPEGImages",  # masks in other folders have the photographs' names
            partial=self.partial,
        )
        return load_image_splits(table, indices, folders, decoding, cache)

    @property
    def devkits(self) -> list[Path]:
        """The folders of the year: ``folder`` itself, or all in it, one for each archive."""
        name = f"VOC{self.year}"
        if self.root.absolute().name == name:  # works for "." too
            return [self.root]
        found = [path for path in sorted(self.root.glob(f"**/{name}")) if path.is_dir()]
        return found or [self.origin.find_folder(self.root, name, f"VOCdevkit/{name}")]

    def labels(self) -> tuple[ImageTable, SplitIndices]:
        """The labels of both splits; no photograph is searched for yet."""
        default_train, default_test = DEFAULT_SETS[self.year]
        train = read_image_set(self.origin, self.devkits, self.train or default_train)
        test = read_image_set(self.origin, self.devkits, self.test or default_test)
        table, indices = join_tables(train, test)
        if self.difficult == "unknown" or table.known is None:
            return table, indices
        filled = np.where(table.known, table.labels, np.uint8(self.difficult == "present"))
        return replace(table, labels=filled, known=None), indices
