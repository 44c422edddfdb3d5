"""Labels from HAM10000's table of diagnoses, or from the ISIC 2018 challenge's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedquilt.core.errors import nearest
from fedquilt.data.published.image_table import ImageTable
from fedquilt.data.published.origin import Origin
from fedquilt.data.published.tables import read_columns, with_groups

DIAGNOSES = ("MEL", "NV", "BCC", "AKIEC", "BKL", "DF", "VASC")  # the challenge's columns
METADATA = ("HAM10000_metadata.csv", "HAM10000_metadata.tab", "HAM10000_metadata")
GROUND_TRUTH = "ISIC2018_Task3_Training_GroundTruth"
GROUPINGS = "ISIC2018_Task3_Training_LesionGroupings.csv"


def read_metadata(origin: Origin, path: Path) -> ImageTable:
    """HAM10000's metadata: the diagnosis of each image; lesions are the groups."""
    lesions, images, words = read_columns(origin, path, "lesion_id", "image_id", "dx")
    column = {name.lower(): number for number, name in enumerate(DIAGNOSES)}
    for row, word in enumerate(words):
        if word.lower() not in column:
            found = f"has the diagnosis {word!r} in line {row + 2}{nearest(word, column)}"
            raise origin.wrong(path, found, "one of the seven")
    labels = np.zeros((len(images), len(DIAGNOSES)), np.uint8)
    labels[np.arange(len(images)), [column[word.lower()] for word in words]] = 1
    return _table(images, labels, tuple(lesions))


def read_ground_truth(origin: Origin, path: Path) -> ImageTable:
    """The challenge's table: a 1.0 in the column of the diagnosis; it does not name lesions."""
    images, *cells = read_columns(origin, path, "image", *DIAGNOSES)
    try:
        values = np.array(cells, dtype=np.float64).T
    except ValueError as error:
        raise origin.wrong(
            path, f"holds a cell that is not a number ({error})", "0.0 or 1.0"
        ) from None
    not_one = np.flatnonzero((values.sum(axis=1) != 1) | ~np.isin(values, (0, 1)).all(axis=1))
    if len(not_one):
        found = f"does not have exactly one diagnosis in line {not_one[0] + 2}"
        raise origin.wrong(path, found, "a 1.0 in one column and 0.0 in the others")
    return _table(images, values.astype(np.uint8), None)


def with_lesions(origin: Origin, table: ImageTable, path: Path) -> ImageTable:
    """Add the lesion of each image to the challenge's table, from its list of groupings."""
    columns = ("image", "lesion_id")
    images = ("image of the ground truth", "images of the ground truth")
    return with_groups(origin, table, path, columns, images)


def _table(
    images: list[str], labels: NDArray[np.uint8], lesions: tuple[str, ...] | None
) -> ImageTable:
    return ImageTable(
        classes=DIAGNOSES,
        ids=tuple(images),
        lines=tuple(range(2, len(images) + 2)),
        labels=labels,
        groups=lesions,
    )
