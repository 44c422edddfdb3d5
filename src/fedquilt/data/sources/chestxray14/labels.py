"""Labels and the official split from NIH's table of findings and lists of images."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedquilt.core.errors import nearest
from fedquilt.core.wording import counted
from fedquilt.data.published.image_table import ImageTable
from fedquilt.data.published.origin import Origin
from fedquilt.data.published.tables import read_columns

log = logging.getLogger(__name__)

View: TypeAlias = Literal["any", "PA", "AP"]

# In NIH's own order.
FINDINGS = (
    *("Atelectasis", "Cardiomegaly", "Effusion", "Infiltration", "Mass", "Nodule", "Pneumonia"),
    *("Pneumothorax", "Consolidation", "Edema", "Emphysema", "Fibrosis", "Pleural_Thickening"),
    "Hernia",
)
NO_FINDING = "No Finding"


def read_entries(origin: Origin, path: Path, view: View) -> ImageTable:
    """The 14 findings of each image of that view; patients are the groups."""
    names, findings, patients, views = read_columns(
        origin, path, "Image Index", "Finding Labels", "Patient ID", "View Position"
    )
    column = {name: number for number, name in enumerate(FINDINGS)}
    labels = np.zeros((len(names), len(FINDINGS)), np.uint8)
    for row, cell in enumerate(findings):
        for name in cell.split("|"):
            if name in column:
                labels[row, column[name]] = 1
            elif name != NO_FINDING:
                hint = nearest(name, (*FINDINGS, NO_FINDING))
                raise origin.wrong(
                    path, f"has the finding {name!r} in line {row + 2}{hint}", "one of the 14"
                )
    table = ImageTable(
        classes=FINDINGS,
        ids=tuple(names),
        lines=tuple(range(2, len(names) + 2)),
        labels=labels,
        groups=tuple(patients),
    )
    if view == "any":
        return table
    return table.select(np.flatnonzero(np.asarray(views) == view))


def most_frequent(table: ImageTable, count: int) -> ImageTable:
    """The ``count`` classes with most positives, most frequent first; ties in NIH's order."""
    order = np.argsort(-table.labels.sum(axis=0, dtype=np.int64), kind="stable")
    return table.select_classes(order[:count].tolist())


def official_test(
    origin: Origin, table: ImageTable, train_list: Path, test_list: Path, *, is_whole: bool
) -> NDArray[np.bool_]:
    """(N,) bool: whether NIH's lists put the image in the test split; each must be on one list.

    ``is_whole``: the table has the images of every view, so the lists should name no others.
    """
    train, test = (set(origin.read_text(path).split()) for path in (train_list, test_list))
    if train & test:
        raise origin.wrong(
            test_list,
            f"shares {counted(len(train & test), 'image')} with the other list",
            "two lists without common images",
        )
    nowhere = [name for name in table.ids if name not in train and name not in test]
    if nowhere:
        raise origin.wrong(
            test_list,
            f"and {train_list.name} lack {counted(len(nowhere), 'image')} of the table, such as "
            f"{nowhere[0]}",
            "every image on one of the two lists",
        )
    absent = len((train | test).difference(table.ids))
    if is_whole and absent:  # a truncated table is still valid CSV
        lacking = counted(absent, "image")
        log.warning("the table lacks %s of the two lists: is it complete?", lacking)
    return np.array([name in test for name in table.ids], dtype=bool)
