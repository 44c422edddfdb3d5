"""Labels from RSNA's table, which has one row per slice and sub-type of haemorrhage."""

from __future__ import annotations

import logging
from array import array
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedquilt.core.seeding import seed_for
from fedquilt.data.published.image_table import ImageTable
from fedquilt.data.published.origin import Origin

log = logging.getLogger(__name__)

SUBTYPES = ("epidural", "intraparenchymal", "intraventricular", "subarachnoid", "subdural")
KINDS = {name: column for column, name in enumerate((*SUBTYPES, "any"))}
DAMAGED = "ID_6431af929"  # its published file is truncated


def read_rows(origin: Origin, path: Path) -> ImageTable:
    """Read the labels of all slices; a repeated row counts once if it agrees with the first.

    The file has over four million rows, so they are split by hand, which is faster than a CSV
    reader.
    """
    position: dict[str, int] = {}
    lines: list[int] = []
    rows, columns, values = array("l"), array("b"), array("b")
    with origin.reading(path), path.open(encoding="utf-8-sig", errors="replace") as file:
        if file.readline().strip() != "ID,Label":
            raise origin.wrong(path, "does not begin with ID,Label", "the file as published")
        for number, line in enumerate(file, start=2):
            name, _, value = line.strip().rpartition(",")
            image, _, kind = name.rpartition("_")
            if not image or kind not in KINDS or value not in ("0", "1"):
                found = f"says {line.strip()[:40]!r} in line {number}"
                raise origin.wrong(path, found, "rows such as ID_12cadc6af_epidural,0")
            if image not in position:
                position[image] = len(position)
                lines.append(number)
            rows.append(position[image])
            columns.append(KINDS[kind])
            values.append(value == "1")
    answers = np.zeros((len(position), len(KINDS), 2), bool)  # whether a row says 0, and 1
    answers[rows, columns, values] = True
    repeated = len(rows) - int(answers.sum())
    if repeated:
        log.info("%s rows of %s are repeated; each counts once", f"{repeated:,}", path.name)
    _check_answers(origin, path, answers, list(position))
    return ImageTable(
        classes=SUBTYPES,
        ids=tuple(position),
        lines=tuple(lines),
        labels=answers[:, : len(SUBTYPES), 1].astype(np.uint8),
    )


def _check_answers(origin: Origin, path: Path, answers: NDArray[np.bool_], ids: list[str]) -> None:
    for wrong, what in (
        (answers.all(axis=2), "says both 0 and 1"),
        (~answers.any(axis=2), "says nothing"),
    ):
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            found = f"{what} for {ids[row]}, {list(KINDS)[column]}"
            raise origin.wrong(path, found, "one value for each slice and sub-type")
    if not ids:
        raise origin.wrong(path, "has no rows", "six for each slice")


def keep_healthy(table: ImageTable, count: int, seed: int) -> ImageTable:
    """Keep all slices with a haemorrhage, and ``count`` of the others, drawn by ``seed``."""
    is_healthy = table.labels.sum(axis=1) == 0
    healthy = np.flatnonzero(is_healthy)
    random = np.random.RandomState(seed_for("healthy", seed) % 2**32)
    kept = random.permutation(healthy)[:count]
    return table.select(np.sort(np.concatenate([np.flatnonzero(~is_healthy), kept])))
