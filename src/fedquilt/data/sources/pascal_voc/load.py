"""PASCAL VOC 2007 and 2012: photographs with any of twenty kinds of objects."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal, TypeAlias, get_args

import numpy as np

from fedquilt.core.errors import UserError
from fedquilt.data.images.decoding import Decoding, Fit
from fedquilt.data.images.index import ImageFolders
from fedquilt.data.published.image_table import ImageTable, Parts, join, load_pictures
from fedquilt.data.published.origin import Origin, PublishedSource
from fedquilt.data.published.settings import check_choice, check_picture
from fedquilt.data.source import Splits
from fedquilt.data.sources.pascal_voc.labels import read_part

Year: TypeAlias = Literal[2007, 2012]
Part: TypeAlias = Literal["train", "val", "trainval", "test"]
Difficult: TypeAlias = Literal["unknown", "present", "absent"]

# The labels of the test images of 2012 were never published.
USUAL_PARTS: dict[int, tuple[Part, Part]] = {2007: ("trainval", "test"), 2012: ("train", "val")}


@dataclass(frozen=True, kw_only=True)
class PascalVoc(PublishedSource):
    """Objects in photographs; what is only there in a "difficult" way counts as not annotated."""

    year: Year = 2007
    train: Part | None = None  # a list of the devkit; trainval in 2007, train in 2012
    test: Part | None = None  # test in 2007, val in 2012
    difficult: Difficult = "unknown"  # what an image with difficult objects of a class only has
    size: int = 224  # pixels a side
    fit: Fit = "squash"  # the photographs' longer side is 500

    origin: ClassVar[Origin] = Origin(
        "PASCAL VOC",
        "the PASCAL Visual Object Classes pages of Oxford's robotics group (host.robots.ox.ac.uk): "
        "the training/validation archive of the year, for 2007 also the test archive, unpacked",
    )

    def __post_init__(self) -> None:
        if self.year not in USUAL_PARTS:
            raise UserError(f"year is {self.year}; expected 2007 or 2012")
        for field, part in (("train", self.train), ("test", self.test)):
            if part is not None:
                check_choice(field, part, get_args(Part))
        check_choice("difficult", self.difficult, get_args(Difficult))
        check_picture(self.size, self.fit)

    def load(self, cache: Path) -> Splits:
        table, parts = self.labels()
        decoding = Decoding(self.size, 3, self.fit)
        folders = ImageFolders(self.origin, self.home, ("JPEGImages",), "them in JPEGImages/")
        return load_pictures(table, parts, folders, decoding, cache)

    @property
    def home(self) -> Path:
        """The folder of the year, which may be given itself or by one that holds it."""
        name = f"VOC{self.year}"
        if self.root.absolute().name == name:  # also where "." was given
            return self.root
        return self.origin.find_folder(self.root, name, f"VOCdevkit/{name}")

    def labels(self) -> tuple[ImageTable, Parts]:
        """What is in each photograph of both parts, before any photograph is looked for."""
        usual_train, usual_test = USUAL_PARTS[self.year]
        train = read_part(self.origin, self.home, self.train or usual_train)
        test = read_part(self.origin, self.home, self.test or usual_test)
        table, parts = join(train, test)
        if self.difficult == "unknown" or table.known is None:
            return table, parts
        filled = np.where(table.known, table.labels, np.uint8(self.difficult == "present"))
        return replace(table, labels=filled, known=None), parts
