"""Folder: a user's own images and label file, checked, decoded once and split by patient."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedquilt.core.errors import UserError, nearest
from fedquilt.data.dataset import MultiLabelDataset
from fedquilt.data.images.bad_image import MISSING_IMAGE, BadImage
from fedquilt.data.images.cache import ImageFile, cached_images
from fedquilt.data.images.decoding import SUFFIXES, Decoding, Fit, find_image
from fedquilt.data.label_files.csv_labels import CsvLabels, LabelColumns, read_labels
from fedquilt.data.label_files.names import LabelNames, read_label_names
from fedquilt.data.label_files.values import Uncertain
from fedquilt.data.problems import Kind, Problems
from fedquilt.data.source import Source, Splits
from fedquilt.data.splits import TEST, TRAIN, VALIDATION, draw_split, split_by_column

log = logging.getLogger(__name__)

NO_FOLDER = Kind("no-folder", "the image folder does not exist", "give the folder of the images")
TOO_FEW = Kind(
    "too-few-to-split",
    "too few images or patients for a train and a test split",
    "at least two are needed: add images, or check the patient column",
)


@dataclass(frozen=True, kw_only=True)
class Folder(Source):
    """Images in ``folder`` and a label file with one row per image; see this source's README.md."""

    folder: str
    labels: str  # the CSV file
    image_column: str = "image"  # holds file names relative to the folder
    patient_column: str | None = None  # images of one patient stay in one split
    site_column: str | None = None  # the natural clients of a study
    split_column: str | None = None  # train, val or test; without it the splits are drawn
    classes: tuple[str, ...] | None = None  # without it every remaining column is a class
    ignore_columns: tuple[str, ...] = ()
    uncertain: Uncertain = "ignore"  # what -1 means: not annotated, present or absent
    label_names: str | None = None  # TOML file that translates label names
    size: int = 224
    channels: Literal[1, 3] = 3
    fit: Fit = "squash"
    window: tuple[float, float] | None = None  # 16-bit and DICOM values shown as black and white
    test_share: float = 0.2
    split_seed: int = 0

    def __post_init__(self) -> None:
        for field, value, allowed in (
            ("uncertain", self.uncertain, get_args(Uncertain)),
            ("fit", self.fit, get_args(Fit)),
        ):
            if value not in allowed:
                raise UserError(f"{field} is {value!r}{nearest(value, allowed)}")
        for field, is_valid, expected in (
            ("channels", self.channels in (1, 3), "1 (grey) or 3 (colour)"),
            ("size", self.size >= 1, "a number of pixels, at least 1"),
            ("test_share", 0 < self.test_share < 1, "a share between 0 and 1, such as 0.2"),
            (
                "window",
                self.window is None or self.window[0] < self.window[1],
                "two numbers, low then high",
            ),
            ("classes", self.classes is None or _distinct(self.classes), "distinct class names"),
        ):
            if not is_valid:
                raise UserError(f"{field} is {getattr(self, field)!r}; expected {expected}")

    @property
    def decoding(self) -> Decoding:
        return Decoding(self.size, self.channels, self.fit, self.window)

    def load(self, cache: Path) -> Splits:
        """Decode into ``cache`` if needed; both splits are slices of one memory-mapped file."""
        problems = Problems()
        found = read_folder(self, problems)
        if problems or found is None or found.splits is None:
            raise problems.error(f"the data in {self.folder}")
        for notice in found.table.notices:
            log.info(notice)
        # With train first, both splits are slices of the mapped file, so nothing is copied.
        is_test = found.splits == TEST
        order = np.argsort(is_test, kind="stable").tolist()
        train_count = int((~is_test).sum())
        is_validation = torch.from_numpy(found.splits[~is_test] == VALIDATION)
        images = cached_images([found.files[row] for row in order], self.decoding, cache)
        return Splits(
            train=dataset_of_rows(found.table, order[:train_count], images[:train_count]),
            test=dataset_of_rows(found.table, order[train_count:], images[train_count:]),
            is_validation=is_validation if bool(is_validation.any()) else None,
        )


@dataclass(frozen=True)
class FolderContent:
    """The label file and the paths of the images; no image is opened."""

    table: CsvLabels
    files: list[ImageFile]  # the images that were found: one per row unless there are problems
    splits: NDArray[np.int8] | None  # per row: TRAIN, VALIDATION or TEST


def read_folder(source: Folder, problems: Problems) -> FolderContent | None:
    """Read the labels, find the images and split them; add to ``problems`` what is wrong."""
    folder = Path(source.folder)
    if not folder.is_dir():
        problems.add(NO_FOLDER, source.folder)
    table = read_labels(Path(source.labels), label_columns(source), problems)
    if table is None:
        return None
    files = find_files(folder, table, problems) if folder.is_dir() else []
    return FolderContent(table, files, _split(source, table, problems))


def label_columns(source: Folder) -> LabelColumns:
    """Return the role of each column of the label file."""
    translation = source.label_names
    return LabelColumns(
        image_column=source.image_column,
        patient_column=source.patient_column,
        site_column=source.site_column,
        split_column=source.split_column,
        classes=source.classes,
        ignore_columns=source.ignore_columns,
        uncertain=source.uncertain,
        names=LabelNames() if translation is None else read_label_names(Path(translation)),
    )


def find_files(folder: Path, table: CsvLabels, problems: Problems) -> list[ImageFile]:
    root = folder.resolve()
    found, hint_given = [], False
    for name, line in zip(table.ids, table.lines):
        if not name:
            continue  # reported as a blank cell
        try:
            found.append(ImageFile(name, find_image(root, name), line))
        except BadImage as bad:
            detail = bad.detail
            if bad.kind is MISSING_IMAGE and not hint_given:
                detail, hint_given = detail + _hint(root, name), True
            problems.add(bad.kind, f"line {line}: {detail}", private=repr(name))
    return found


def _hint(root: Path, name: str) -> str:
    """Where a missing image may be: in a subfolder, or under its name with an ending."""
    for subfolder in sorted(path for path in root.iterdir() if path.is_dir()):
        if (subfolder / name).is_file():
            return f", but it is in the subfolder {subfolder.name!r}: give that as the image folder"
    if (root.parent / name).is_file():
        return f", but it is below {root.parent.name!r}: give that as the image folder"
    for suffix in SUFFIXES:
        if (root / f"{name}{suffix}").is_file():
            return f", but there is one with the ending {suffix!r}: write names with their endings"
    folder, wanted = (root / name).parent, Path(name).name.casefold()
    if folder.is_dir() and any(each.name.casefold() == wanted for each in folder.iterdir()):
        return ", but there is one in other capitals: write names as the files have them"
    return ""


def _split(source: Folder, table: CsvLabels, problems: Problems) -> NDArray[np.int8] | None:
    if table.splits is not None:
        return split_by_column(table.splits, table.groups, table.lines, problems)
    marks = (table.known & table.labels.bool()).numpy()
    units = table.ids if table.groups is None else table.groups
    if len(set(units)) < 2:
        what = "image" if table.groups is None else "patient"
        problems.add(TOO_FEW, f"{len(set(units))} {what}")
        return None
    is_test = draw_split(units, marks, source.test_share, source.split_seed, table.sites)
    return np.where(is_test, TEST, TRAIN).astype(np.int8)


def dataset_of_rows(table: CsvLabels, indices: list[int], images: Tensor) -> MultiLabelDataset:
    return MultiLabelDataset(
        images=images,
        labels=table.labels[indices],
        known=table.known[indices],
        classes=table.classes,
        ids=tuple(table.ids[index] for index in indices),
        groups=None if table.groups is None else tuple(table.groups[index] for index in indices),
        sites=None if table.sites is None else tuple(table.sites[index] for index in indices),
    )


def _distinct(names: tuple[str, ...]) -> bool:
    return len(set(names)) == len(names) > 0 and all(names)
