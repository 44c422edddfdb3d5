"""NIH ChestX-ray14: 112,120 frontal chest radiographs with up to 14 findings each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from fedquilt.core.errors import UserError
from fedquilt.data.images.decoding import Decoding, Fit
from fedquilt.data.images.index import ImageFolders
from fedquilt.data.published.image_table import ImageTable, SplitIndices, load_image_splits
from fedquilt.data.published.origin import Origin, PublishedImages
from fedquilt.data.published.settings import check_image_settings, check_one_of, check_shares
from fedquilt.data.published.splits import draw_by_group, draw_by_image, draw_left_out
from fedquilt.data.source import Splits
from fedquilt.data.sources.chestxray14.labels import (
    View,
    most_frequent,
    official_test,
    read_entries,
)

Findings: TypeAlias = Literal["all14", "top8"]
Split: TypeAlias = Literal["official", "patient", "image"]


@dataclass(frozen=True, kw_only=True)
class ChestXray14(PublishedImages):
    """Findings mined from radiology reports; "No Finding" is an image without any label."""

    classes: Findings = "all14"  # "top8": the eight most frequent in the chosen view (FedMLP)
    view: View = "any"  # "PA": postero-anterior images only (FedMLP)
    split: Split = "official"  # NIH's lists; or test_share is drawn, by patient or by image
    test_share: float = 0.3  # of a drawn split
    validation_share: float = 0.0  # of the training images, left out; FedLSM: 0.125
    split_seed: int = 0
    size: int = 224  # pixels per side
    channels: Literal[1, 3] = 3  # the images are grey: 1 takes a third of the memory
    fit: Fit = "squash"  # the published images are square

    origin: ClassVar[Origin] = Origin(
        "ChestX-ray14",
        "the NIH Clinical Center's Box folder 'ChestXray-NIHCC' (also on Kaggle as 'NIH Chest "
        "X-rays'): the CSV file, the two lists and the twelve image archives, unpacked",
    )

    def __post_init__(self) -> None:
        check_one_of("classes", self.classes, get_args(Findings))
        check_one_of("view", self.view, get_args(View))
        check_one_of("split", self.split, get_args(Split))
        check_shares(self.test_share, self.validation_share)
        check_image_settings(self.size, self.fit)
        if self.channels not in (1, 3):
            raise UserError(f"channels is {self.channels}; expected 1 (grey) or 3 (colour)")

    def load(self, cache: Path) -> Splits:
        table = self.labels()
        decoding = Decoding(self.size, self.channels, self.fit)
        folders = ImageFolders(
            self.origin,
            self.root,
            ("images", "images_*/images", "images_*"),
            "them in images/ or in images_001/images/ to images_012/images/",
            partial=self.partial,
        )
        return load_image_splits(table, self.split_indices(table), folders, decoding, cache)

    def labels(self) -> ImageTable:
        """The labels of all images of the view; no image is searched for yet."""
        path = self.origin.find(self.root, "Data_Entry_2017_v2020.csv", "Data_Entry_2017.csv")
        table = read_entries(self.origin, path, self.view)
        return most_frequent(table, 8) if self.classes == "top8" else table

    def split_indices(self, table: ImageTable) -> SplitIndices:
        """The official or drawn splits, without the images left out for validation."""
        is_test = self._is_test(table)
        return SplitIndices.from_mask(
            is_test, draw_left_out(is_test, self.validation_share, self.split_seed)
        )

    def _is_test(self, table: ImageTable) -> NDArray[np.bool_]:
        if self.split == "patient":
            return draw_by_group(table, self.test_share, self.split_seed)
        if self.split == "image":
            return draw_by_image(table, self.test_share, self.split_seed)
        lists = (self.origin.find(self.root, f"{each}_list.txt") for each in ("train_val", "test"))
        return official_test(self.origin, table, *lists, is_whole=self.view == "any")
