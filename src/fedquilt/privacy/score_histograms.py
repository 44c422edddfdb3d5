"""The part ``score_histograms``: what a site sends, once, so that thresholds can be fitted.

Counts of positives and negatives by cell of the logit, and their mean logits, per class, of the
site's validation images. Every cell holds 0 or at least ``min_cell`` patients of either kind. A
class with fewer patients of one kind is not sent at all: its row is 0. Scores and labels of single
images do not leave.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fedquilt.core.payload import Gather
from fedquilt.metrics.histograms import BINS, Cells, cells_of_scores
from fedquilt.metrics.placements import Integers, Mask

PART = "score_histograms"
COUNTS, MEANS = ("positives", "negatives"), ("positive_means", "negative_means")


def score_histograms(
    logits: npt.NDArray[np.floating],
    labels: npt.NDArray[np.uint8],
    known: Mask,
    patients: Integers | None,
    min_cell: int,
) -> Gather:
    """Return the part of one site, from its scores (N, C)."""
    classes = logits.shape[1]
    value = {name: torch.zeros(classes, BINS, dtype=torch.int32) for name in COUNTS}
    value |= {name: torch.zeros(classes, BINS, dtype=torch.float64) for name in MEANS}
    value["starts"] = torch.zeros(classes, BINS, dtype=torch.uint8)
    for column in range(classes):
        scores = logits[:, column].astype(np.float64)
        cells = cells_of_scores(scores, labels[:, column], known[:, column], patients, min_cell)
        if cells is None or not len(cells.starts) or not known[:, column].any():
            continue
        value["starts"][column, cells.starts] = 1
        for name in (*COUNTS, *MEANS):
            numbers = torch.from_numpy(getattr(cells, name))
            value[name][column, cells.starts] = numbers.to(value[name].dtype)
    return Gather(value)


def expected_histograms(classes: int) -> Gather:
    """Return a part of the shape that every site sends."""
    nothing = np.zeros((0, classes))
    return score_histograms(nothing, nothing.astype(np.uint8), nothing > 0, None, 0)


def cells_by_class(value: Any, classes: tuple[str, ...]) -> dict[str, Cells]:
    """Return the cells of one site, by class; a class that was not sent is left out.

    Raise ValueError if the counts do not belong to cells.
    """
    found = {}
    for column, name in enumerate(classes):
        starts = value["starts"][column].bool()
        counts = [value[kind][column].to(torch.int64) for kind in COUNTS]
        if any(bool((each < 0).any()) or bool(each[~starts].any()) for each in counts):
            raise ValueError(f"the histogram of class {name!r} has counts outside of its cells")
        if not starts.any():
            continue
        if not starts[0]:
            raise ValueError(f"the histogram of class {name!r} does not start at its first bin")
        places = starts.nonzero().flatten().numpy()
        means = (value[kind][column][starts].numpy() for kind in MEANS)
        found[name] = Cells(places, *(each[starts].numpy() for each in counts), *means)
    return found
