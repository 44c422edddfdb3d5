"""FLAIR: photographs of 51,414 Flickr users, the natural clients, with coarse or fine labels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, TypeAlias, get_args

import numpy as np

from fedquilt.data.images.decoding import Decoding, Fit
from fedquilt.data.images.index import ImageFolders
from fedquilt.data.published.image_table import ImageTable, SplitIndices, load_image_splits
from fedquilt.data.published.origin import Origin, PublishedImages
from fedquilt.data.published.settings import check_image_settings, check_one_of
from fedquilt.data.source import Splits
from fedquilt.data.sources.flair.labels import Grain, read_entries

Validation: TypeAlias = Literal["leave-out", "train"]


@dataclass(frozen=True, kw_only=True)
class Flair(PublishedImages):
    """Objects in users' photographs; the partition "natural" makes every user a client."""

    grain: Grain = "coarse"  # 17 classes; "fine" has 1,628
    validation: Validation = "leave-out"  # "train" adds the official val split to train
    size: int = 224  # pixels per side
    fit: Fit = "squash"  # the small images are 256 x 256 already

    origin: ClassVar[Origin] = Origin(
        "FLAIR",
        "the repository apple/ml-flair on GitHub, whose script downloads "
        "labels_and_metadata.json and the small images",
    )

    def __post_init__(self) -> None:
        check_one_of("grain", self.grain, get_args(Grain))
        check_one_of("validation", self.validation, get_args(Validation))
        check_image_settings(self.size, self.fit)

    def load(self, cache: Path) -> Splits:
        table, indices = self.labels()
        decoding = Decoding(self.size, 3, self.fit)
        folders = ImageFolders(
            self.origin,
            self.root,
            ("small_images",),
            "them in small_images/",
            partial=self.partial,
        )
        return load_image_splits(table, indices, folders, decoding, cache)

    def labels(self) -> tuple[ImageTable, SplitIndices]:
        """Users and labels of all images; no image is searched for yet."""
        path = self.origin.find(self.root, "labels_and_metadata.json")
        table, splits = read_entries(self.origin, path, self.grain)
        split = np.asarray(splits)
        is_left_out = (split == "val") & (self.validation == "leave-out")
        return table, SplitIndices.from_mask(split == "test", is_left_out)
