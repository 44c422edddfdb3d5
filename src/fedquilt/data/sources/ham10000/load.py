"""HAM10000, the training set of ISIC 2018 task 3: 10,015 skin lesions of seven kinds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, TypeAlias, get_args

from fedquilt.data.images.decoding import Decoding, Fit
from fedquilt.data.images.index import ImageFolders
from fedquilt.data.published.image_table import ImageTable, SplitIndices, load_image_splits
from fedquilt.data.published.origin import Origin, PublishedImages
from fedquilt.data.published.settings import check_image_settings, check_one_of, check_shares
from fedquilt.data.published.splits import draw_by_group, draw_by_image, draw_left_out
from fedquilt.data.source import Splits
from fedquilt.data.sources.ham10000.labels import (
    GROUND_TRUTH,
    GROUPINGS,
    METADATA,
    read_ground_truth,
    read_metadata,
    with_lesions,
)

Split: TypeAlias = Literal["lesion", "image"]


@dataclass(frozen=True, kw_only=True)
class Ham10000(PublishedImages):
    """Dermatoscopic photographs; each image has exactly one of seven diagnoses."""

    split: Split = "lesion"  # "image" as in FedLSM, with photographs of a lesion in both splits
    test_share: float = 0.2
    validation_share: float = 0.125  # of the other images, left out: 7 : 1 : 2 in all
    split_seed: int = 0
    size: int = 224  # pixels per side
    fit: Fit = "squash"  # the photographs are 600 x 450

    origin: ClassVar[Origin] = Origin(
        "HAM10000",
        "Harvard Dataverse (doi 10.7910/DVN/DBW86T: metadata and two image archives, unpacked), "
        "or the ISIC archive's challenge page of 2018, task 3 (training input, ground truth and "
        "lesion groupings)",
    )

    def __post_init__(self) -> None:
        check_one_of("split", self.split, get_args(Split))
        check_shares(self.test_share, self.validation_share)
        check_image_settings(self.size, self.fit)

    def load(self, cache: Path) -> Splits:
        table = self.labels()
        decoding = Decoding(self.size, 3, self.fit)
        folders = ImageFolders(
            self.origin,
            self.root,
            ("HAM10000_images_part*", "ISIC2018_Task3_Training_Input", "images"),
            "them in HAM10000_images_part_1/ and _2/ or in ISIC2018_Task3_Training_Input/",
            partial=self.partial,
        )
        return load_image_splits(table, self.split_indices(table), folders, decoding, cache)

    def labels(self) -> ImageTable:
        """The diagnosis of every image; no image is searched for yet."""
        truth = f"{GROUND_TRUTH}.csv"
        path = self.origin.find(self.root, *METADATA, truth, f"{GROUND_TRUTH}/{truth}")
        if path.name != truth:
            return read_metadata(self.origin, path)
        table = read_ground_truth(self.origin, path)
        groupings = self.root / GROUPINGS
        return with_lesions(self.origin, table, groupings) if groupings.is_file() else table

    def split_indices(self, table: ImageTable) -> SplitIndices:
        """Draw the splits by lesion or by image, and leave out the validation images."""
        if self.split == "image":
            is_test = draw_by_image(table, self.test_share, self.split_seed)
        elif table.groups is None:
            hint = 'The ground truth does not name lesions; without this file, set split = "image"'
            raise self.origin.missing(self.root, GROUPINGS, hint=hint)
        else:
            is_test = draw_by_group(table, self.test_share, self.split_seed)
        return SplitIndices.from_mask(
            is_test, draw_left_out(is_test, self.validation_share, self.split_seed)
        )
