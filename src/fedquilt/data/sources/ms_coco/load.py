"""MS-COCO 2014 and 2017: photographs of everyday scenes with any of 80 kinds of objects."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, TypeAlias, get_args

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
from fedquilt.data.published.settings import check_image_settings
from fedquilt.data.source import Splits
from fedquilt.data.sources.ms_coco.labels import read_instances

Year: TypeAlias = Literal[2014, 2017]


@dataclass(frozen=True, kw_only=True)
class MsCoco(PublishedImages):
    """Objects in photographs; the published validation set is the test split."""

    year: Year = 2014
    size: int = 224  # pixels per side
    fit: Fit = "squash"  # the photographs' longer side is mostly 640

    origin: ClassVar[Origin] = Origin(
        "MS-COCO",
        "the download page of cocodataset.org: the train and val images and the train/val "
        "annotations of the year, unpacked",
    )

    def __post_init__(self) -> None:
        if self.year not in get_args(Year):
            raise UserError(f"year is {self.year}; expected 2014 or 2017")
        check_image_settings(self.size, self.fit)

    def load(self, cache: Path) -> Splits:
        table, indices = self.labels()
        decoding = Decoding(self.size, 3, self.fit)
        names = (f"train{self.year}", f"val{self.year}")
        folders = ImageFolders(
            self.origin,
            self.root,
            tuple(f"{above}{name}" for above in ("", "images/") for name in names),
            f"them in {names[0]}/ and {names[1]}/, or in images/",
            partial=self.partial,
        )
        return load_image_splits(table, indices, folders, decoding, cache)

    def labels(self) -> tuple[ImageTable, SplitIndices]:
        """The labels of both splits; no photograph is searched for yet."""
        train, test = (self._read(split) for split in ("train", "val"))
        if train.classes != test.classes:
            path = self.root / "annotations"
            raise self.origin.wrong(
                path, "has files with different classes", "the files of one year"
            )
        return join_tables(train, test)

    def _read(self, split: str) -> ImageTable:
        name = f"instances_{split}{self.year}.json"
        return read_instances(self.origin, self.origin.find(self.root, f"annotations/{name}", name))
