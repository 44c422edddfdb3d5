"""The part ``site_report``: what a site finds of the final model, sent once, at the end of a study.

Per class the AUC with its interval and variance, AP, the four counts at the threshold, Brier score,
log-loss, calibration slope and intercept, and counts of images and patients. The server sees each
site's own. A class with fewer than ``min_cell`` patients on either side is left out, counts too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import nan
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedquilt.core.payload import Gather, Update
from fedquilt.core.update_checks import RefusedUpdate
from fedquilt.metrics.class_intervals import average_precision, macro_auc
from fedquilt.metrics.decision_quality import reliability
from fedquilt.metrics.intervals import ap_interval, auc_interval
from fedquilt.metrics.labelled_images import ClassEntries, LabelledImages
from fedquilt.metrics.placements import Floats, Influence, Mask

PART = "site_report"
COUNTS = ("positives", "negatives", "positive_patients", "negative_patients")
DECISIONS = ("true_positives", "false_negatives", "false_positives", "true_negatives")
RANKING = ("auc", "auc_low", "auc_high", "auc_variance", "ap", "ap_low", "ap_high")
CALIBRATION = ("brier", "log_loss", "slope", "intercept")
NUMBERS = (*COUNTS, *DECISIONS, *RANKING, *CALIBRATION)
SHARES = ("auc", "auc_low", "auc_high", "ap", "ap_low", "ap_high", "brier")  # from 0 to 1
ORDERED = ("auc", "ap")  # each between its "low" and its "high"
MACRO = ("value", "low", "high")


def site_report(
    images: LabelledImages,
    logits: npt.NDArray[np.floating],
    probabilities: Floats,
    present: Mask,
    *,
    on_test: bool,
    min_cell: int = 0,
    min_cell_errors: int = 0,
) -> Gather:
    """Return the part of one site; what is undefined or withheld is not known.

    Args:
        images: what the site knows of its images.
        logits: (N, C) of the model.
        probabilities: (N, C), calibrated where the study is.
        present: (N, C) the decisions.
        on_test: whether the images are held out for testing; otherwise they validated.
        min_cell: patients of either kind that a class must have.
        min_cell_errors: patients that each of the four counts must have, if it has any.
    """
    images = _above_the_floor(images, min_cell)
    classes = images.labels.shape[1]
    influences = list(images.influences([logits]))
    rows = [
        _numbers(
            images.of_class(column),
            influence,
            logits[:, column],
            probabilities[:, column],
            present[:, column],
            min_cell_errors,
        )
        for column, influence in enumerate(influences)
    ]
    table = np.array([[row.get(name, nan) for row in rows] for name in NUMBERS])
    macro = macro_auc(influences)
    over_classes = np.array([macro[name] for name in MACRO])
    enough = images.known.any() and images.patient_count >= min_cell
    sizes = [len(images.labels), images.patient_count] if enough else [0, 0]
    return Gather(
        {
            "numbers": torch.from_numpy(np.nan_to_num(table)).reshape(len(NUMBERS), classes),
            "known": torch.from_numpy(~np.isnan(table)).reshape(len(NUMBERS), classes).byte(),
            "macro": torch.from_numpy(np.nan_to_num(over_classes)),
            "has_macro": torch.from_numpy(~np.isnan(over_classes)).byte(),
            "sizes": torch.tensor(sizes, dtype=torch.int64),
            "flags": torch.tensor([on_test, images.unit == "patient"], dtype=torch.uint8),
        }
    )


def _above_the_floor(images: LabelledImages, min_cell: int) -> LabelledImages:
    """Return the images without their annotations of classes that too few patients judge."""
    known = images.known.copy()
    for column in range(known.shape[1]):
        entries = images.of_class(column)
        sides = (entries.patients[entries.positive], entries.patients[~entries.positive])
        if any(len(np.unique(side)) < min_cell for side in sides):
            known[:, column] = False
    return replace(images, known=known)


def _numbers(
    entries: ClassEntries,
    auc: Influence,
    logits: npt.NDArray[np.floating],
    probabilities: Floats,
    present: Mask,
    min_cell_errors: int,
) -> dict[str, float]:
    """Return one class's numbers by name; a number that is missing is undefined."""
    size, interval = auc.size, auc_interval(auc)
    found: dict[str, float] = {name: getattr(size, name) for name in COUNTS}
    if not len(entries.rows):
        return found
    found |= _decisions(entries, present[entries.rows], min_cell_errors)
    ap = ap_interval(
        average_precision(logits[entries.rows], entries.positive), size.positive_patients
    )
    found |= {"auc": interval.value, "auc_low": interval.low, "auc_high": interval.high}
    found |= {"ap": ap.value, "ap_low": ap.low, "ap_high": ap.high}
    if auc.is_estimated and size.is_testable:
        found["auc_variance"] = auc.variance
    quality = reliability(probabilities[entries.rows], entries.positive)
    found |= {"brier": quality["brier"], "log_loss": quality["log_loss"]}
    for name in ("slope", "intercept"):
        if quality[name] is not None:
            found[name] = quality[name][0]
    return found


def _decisions(entries: ClassEntries, present: Mask, min_cell_errors: int) -> dict[str, float]:
    cells = {
        "true_positives": present & entries.positive,
        "false_negatives": ~present & entries.positive,
        "false_positives": present & ~entries.positive,
        "true_negatives": ~present & ~entries.positive,
    }
    patients = [len(np.unique(entries.patients[cell])) for cell in cells.values()]
    if any(0 < count < min_cell_errors for count in patients):
        return {}
    return {name: float(cell.sum()) for name, cell in cells.items()}


def expected_report(class_count: int) -> Update:
    """Return a part of the names, kinds and shapes that every site sends."""
    nothing = np.zeros((0, class_count))
    images = LabelledImages.of(nothing.astype(np.uint8), nothing > 0)
    return {PART: site_report(images, nothing, nothing, nothing > 0, on_test=False)}


class SiteReportCheck:
    """The server's check of what a site claims: its own classes, right ranges, counts that add."""

    def __init__(self, annotated: Callable[[str], Tensor], classes: Sequence[str]) -> None:
        self._annotated, self._classes = annotated, classes

    def __call__(self, site: str, update: Update) -> None:
        """Raise RefusedUpdate; names and shapes must have been checked before."""
        value: Any = update[PART].value
        for why, wrong in _faults(value, self._annotated(site)).items():
            if bool(wrong.any()):
                place = int(wrong.reshape(-1, wrong.shape[-1]).any(0).nonzero()[0])
                name = self._classes[place] if wrong.shape[-1] == len(self._classes) else "all"
                raise RefusedUpdate(f"client {site!r}, part {PART!r}: {why} (class {name!r})")


def _faults(value: Mapping[str, Tensor], annotated: Tensor) -> dict[str, Tensor]:
    """Return where each rule is broken, by class in the last axis."""
    numbers, known = value["numbers"], value["known"].bool()
    of = dict(zip(NUMBERS, numbers))
    is_known = dict(zip(NUMBERS, known))
    counts = numbers[[NUMBERS.index(name) for name in (*COUNTS, *DECISIONS)]]
    shares = numbers[[NUMBERS.index(name) for name in SHARES]]
    macro = value["macro"]
    images = float(value["sizes"][0])
    found = {
        "it judges a class that it does not annotate": (numbers != 0) & ~annotated,
        "a number that is not known is not 0": (numbers != 0) & ~known,
        "a count is no count": (counts < 0) | (counts != counts.round()),
        "more entries than images": of["positives"] + of["negatives"] > images,
        "more patients than images": (of["positive_patients"] > of["positives"])
        | (of["negative_patients"] > of["negatives"]),
        "a value lies outside of 0 to 1": (shares < 0) | (shares > 1),
        "a variance or a loss is negative": (of["auc_variance"] < 0) | (of["log_loss"] < 0),
        "the macro-AUC lies outside of 0 to 1": (macro < 0) | (macro > 1),
    }
    for side, hits, rest in (
        ("positives", "true_positives", "false_negatives"),
        ("negatives", "false_positives", "true_negatives"),
    ):
        adds_up = of[hits] + of[rest] == of[side]
        found[f"its decisions on {side} do not add up"] = is_known[hits] & ~adds_up
    for name in ORDERED:
        inside = (of[f"{name}_low"] <= of[name]) & (of[name] <= of[f"{name}_high"])
        found[f"its {name} lies outside of its interval"] = is_known[f"{name}_low"] & ~inside
    return found
