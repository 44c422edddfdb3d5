"""Other people's images and labels, as a run's model can be judged by them.

A label file may have some of the model's classes only, under other names and beside columns that
the model does not know. Images that the model was trained on are left out.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from fedquilt.core.errors import UserError
from fedquilt.data.dataset import MultiLabelDataset
from fedquilt.data.images.cache import cached_images
from fedquilt.data.label_files.csv_labels import read_labels
from fedquilt.data.label_files.partial import NotJudged, judgeable_columns
from fedquilt.data.problems import Problems
from fedquilt.data.sources.folder.load import (
    NO_FOLDER,
    Folder,
    dataset_of_rows,
    find_files,
    label_columns,
)
from fedquilt.data.splits import SPLIT_OF, TEST
from fedquilt.runs.trained_images import read_trained_images

log = logging.getLogger(__name__)

NO_TEST_ROW = "no row of {labels} is marked test in column {column!r}; leave out --split-column"


@dataclass(frozen=True, kw_only=True)
class OtherData:
    """Images with the model's classes; a class that the label file lacks is unannotated."""

    data: MultiLabelDataset
    not_judged: NotJudged
    trained_on: int | None  # images left out; None: the run keeps no hashes to find them by

    def warnings(self) -> list[str]:
        """Return what a reader of the numbers has to know."""
        found = self.not_judged.sentences()
        if self.trained_on is None:
            found.append(
                "whether the model was trained on these images is not known: the run folder holds "
                "no hashes of its training images"
            )
        elif self.trained_on:
            found.append(
                f"THE MODEL WAS TRAINED ON {self.trained_on} OF THESE IMAGES: they are left out. "
                "Other images of the same patients cannot be recognised: make sure that there are "
                "none"
            )
        return found


def load_other_data(run: Path, source: Folder, classes: Sequence[str], cache: Path) -> OtherData:
    """Load the images that can judge a model with these classes.

    Args:
        run: the run folder, which knows the images it was trained on.
        source: where images and labels are; of a split column the test rows are used.
        classes: of the model, in its order.
        cache: the folder for decoded images.
    """
    columns, not_judged = judgeable_columns(Path(source.labels), label_columns(source), classes)
    problems = Problems()
    folder = Path(source.folder)
    if not folder.is_dir():
        problems.add(NO_FOLDER, source.folder)
    table = read_labels(Path(source.labels), columns, problems)
    files = find_files(folder, table, problems) if table is not None and folder.is_dir() else []
    if problems or table is None:
        raise problems.error(f"the data in {source.folder}")
    for notice in table.notices:
        log.info(notice)
    rows = _test_rows(source, table.splits, len(table.ids))
    images = cached_images([files[row] for row in rows], source.decoding, cache)
    found = _with_all_classes(dataset_of_rows(table, rows, images), classes)
    return _without_trained_images(run, OtherData(data=found, not_judged=not_judged, trained_on=0))


def _test_rows(source: Folder, splits: Sequence[str] | None, count: int) -> list[int]:
    if splits is None:
        return list(range(count))
    rows = [row for row, split in enumerate(splits) if SPLIT_OF.get(split.casefold()) == TEST]
    if not rows:
        raise UserError(NO_TEST_ROW.format(labels=source.labels, column=source.split_column))
    return rows


def _with_all_classes(data: MultiLabelDataset, classes: Sequence[str]) -> MultiLabelDataset:
    labels = torch.zeros(len(data), len(classes), dtype=torch.uint8)
    known = torch.zeros(len(data), len(classes), dtype=torch.bool)
    columns = [list(classes).index(name) for name in data.classes]
    labels[:, columns], known[:, columns] = data.labels, data.known
    return replace(data, labels=labels, known=known, classes=tuple(classes))


def _without_trained_images(run: Path, other: OtherData) -> OtherData:
    trained = read_trained_images(run)
    if trained is None:
        return replace(other, trained_on=None)
    seen = trained.are_among(other.data.images).numpy()
    count = int(seen.sum())
    if not count:
        return other
    if count == len(other.data):
        raise UserError(
            f"the model was trained on all {count} of these images, so they say nothing of how "
            "well it does on others; give images that it has not seen"
        )
    data = other.data.select(np.flatnonzero(~seen).tolist())
    return replace(other, data=data, trained_on=count)
