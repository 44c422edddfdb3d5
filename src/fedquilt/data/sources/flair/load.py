"""FLAIR: photographs of 51,414 Flickr users, who are the clients, with coarse or fine labels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, TypeAlias, get_args

import numpy as np

from fedquilt.data.images.decoding import Decoding, Fit
from fedquilt.data.images.index import ImageFolders
from fedquilt.data.published.image_table import ImageTable, Parts, load_pictures
from fedquilt.data.published.origin import Origin, PublishedSource
from fedquilt.data.published.settings import check_choice, check_picture
from fedquilt.data.source import Splits
from fedquilt.data.sources.flair.labels import Grain, read_entries

Validation: TypeAlias = Literal["leave-out", "train"]


@dataclass(frozen=True, kw_only=True)
class Flair(PublishedSource):
    """What is in users' photographs; the partition "natural" makes every user a client."""

    grain: Grain = "coarse"  # 17 classes; "fine" has 1,628
    validation: Validation = "leave-out"  # the users of the official val part; or they train too
    size: int = 224  # pixels a side
    fit: Fit = "squash"  # the small images are 256 x 256 already

    origin: ClassVar[Origin] = Origin(
        "FLAIR",
        "the repository apple/ml-flair on GitHub, whose script downloads "
        "labels_and_metadata.json and the small images",
    )

    def __post_init__(self) -> None:
        check_choice("grain", self.grain, get_args(Grain))
        check_choice("validation", self.validation, get_args(Validation))
        check_picture(self.size, self.fit)

    def load(self, cache: Path) -> Splits:
        table, parts = self.labels()
        decoding = Decoding(self.size, 3, self.fit)
        folders = ImageFolders(self.origin, self.root, ("small_images",), "them in small_images/")
        return load_pictures(table, parts, folders, decoding, cache)

    def labels(self) -> tuple[ImageTable, Parts]:
        """Users and labels of all images, before any image is looked for."""
        path = self.origin.find(self.root, "labels_and_metadata.json")
        table, names = read_entries(self.origin, path, self.grain)
        part = np.asarray(names)
        is_left_out = (part == "val") & (self.validation == "leave-out")
        return table, Parts.of(part == "test", is_left_out)
