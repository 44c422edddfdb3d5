"""RSNA 2019: slices of head CTs with up to five sub-types of intracranial haemorrhage."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal, TypeAlias, get_args

import numpy as np
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.data.images.cache import ImageFile, cached_images
from fedquilt.data.images.decoding import Decoding
from fedquilt.data.images.index import ImageFolders
from fedquilt.data.published.image_table import (
    ImageTable,
    SplitIndices,
    bad_images_error,
    left_out_sentence,
    load_splits,
)
from fedquilt.data.published.origin import Origin, PublishedSource
from fedquilt.data.published.settings import check_image_settings, check_one_of, check_shares
from fedquilt.data.published.splits import draw_by_group, draw_by_image
from fedquilt.data.source import Splits
from fedquilt.data.sources.rsna_ich.labels import DAMAGED, keep_healthy, read_rows
from fedquilt.data.sources.rsna_ich.patients import patients_of_files, patients_of_table
from fedquilt.data.sources.rsna_ich.slices import Windows, decoded_slices

Stage: TypeAlias = Literal[1, 2]
Split: TypeAlias = Literal["patient", "image"]
MissingImages: TypeAlias = Literal["error", "leave-out"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class RsnaIch(PublishedSource):
    """Haemorrhages in single slices; both splits come from the challenge's training set."""

    stage: Stage = 2  # of the challenge's training set; FedMLP's counts are those of stage 1
    images: str | None = None  # subfolder of DICOM, PNG or JPEG files; None: stage_2_train
    missing_images: MissingImages = "error"  # "leave-out" uses the slices that are there
    healthy: int | None = None  # number of slices without a haemorrhage, drawn; FedMLP: 87948
    split: Split = "patient"  # "image" as in FedMLP, with slices of a head in both splits
    patients: str | None = None  # CSV in the folder, columns ID and PatientID; None: from DICOM
    test_share: float = 0.3
    split_seed: int = 0
    windows: Windows = ((40.0, 80.0), (80.0, 200.0), (600.0, 2800.0))
    # centre and width of each channel in Hounsfield units: brain, subdural space, bone (DICOM)
    size: int = 224  # pixels per side; the few slices that are not square are squashed

    goes_on_with: ClassVar[str | None] = "missing_images=leave-out"
    origin: ClassVar[Origin] = Origin(
        "RSNA ICH",
        "Kaggle's competition 'RSNA Intracranial Hemorrhage Detection' (the CSV file and the "
        "folder of training images)",
    )

    def __post_init__(self) -> None:
        if self.stage not in get_args(Stage):
            raise UserError(f"stage is {self.stage}; expected 1 or 2")
        check_one_of("missing_images", self.missing_images, get_args(MissingImages))
        check_one_of("split", self.split, get_args(Split))
        check_shares(self.test_share)
        check_image_settings(self.size)
        if self.healthy is not None and self.healthy < 0:
            raise UserError(f"healthy is {self.healthy}; expected a number of slices, or none")
        if any(width <= 0 for _, width in self.windows):
            raise UserError(f"windows is {self.windows}; expected a centre and a width above 0")

    def load(self, cache: Path) -> Splits:
        folders = self._folders()
        table, missing = self.labels(folders)
        if self.split == "image":
            is_test = draw_by_image(table, self.test_share, self.split_seed)
        else:
            table = self._with_patients(table, folders, cache)
            is_test = draw_by_group(table, self.test_share, self.split_seed)
        splits = load_splits(
            table,
            SplitIndices.from_mask(is_test),
            folders,
            lambda files: self._decode(files, cache),
        )
        return replace(splits, missing_images=missing)

    def labels(self, folders: ImageFolders) -> tuple[ImageTable, int]:
        """The labels of the selected slices, and how many slices are missing and left out.

        ``folders`` is used only to find missing images.
        """
        path = self.origin.find(self.root, f"stage_{self.stage}_train.csv")
        table = read_rows(self.origin, path)
        index = folders.index() if self.missing_images == "leave-out" else dict.fromkeys(table.ids)
        missing = sum(name not in index for name in table.ids)
        wanted = [name in index and name != DAMAGED for name in table.ids]
        if not any(wanted):
            folders.locate(table.ids)  # raises an error that says what is missing
        if missing:
            log.warning("%s", left_out_sentence(self.origin, missing, len(table)))
        table = table.select(np.flatnonzero(wanted))
        if self.healthy is not None:
            table = keep_healthy(table, self.healthy, self.split_seed)
        return table, missing

    def _folders(self) -> ImageFolders:
        name = self.images or f"stage_{self.stage}_train"
        folder = self.origin.find_folder(self.root, name)
        return ImageFolders(self.origin, folder, (), f"them in {name}/, such as ID_12cadc6af.dcm")

    def _with_patients(self, table: ImageTable, folders: ImageFolders, cache: Path) -> ImageTable:
        if self.patients is not None:
            path = self.origin.find(self.root, self.patients)
            return patients_of_table(self.origin, table, path)
        paths = folders.locate(table.ids)
        if not all(map(_is_dicom, paths)):
            raise UserError(
                f"{self.origin.title}: converted images do not name their patients; set patients "
                'to a CSV file with the columns ID and PatientID, or set split = "image"'
            )
        files = [ImageFile(*each) for each in zip(table.ids, paths, table.lines)]
        return replace(table, groups=patients_of_files(files, cache, self.origin))

    def _decode(self, files: list[ImageFile], cache: Path) -> Tensor:
        if not any(_is_dicom(file.path) for file in files):
            error_of = partial(bad_images_error, self.origin)
            return cached_images(files, Decoding(self.size, 3), cache, error_of)
        return decoded_slices(files, self.windows, self.size, cache, self.origin)


def _is_dicom(path: Path) -> bool:
    return path.suffix.lower() in (".dcm", ".dicom")
