"""Quality of thresholds and calibration on images they were not fitted on, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fedquilt.metrics.calibration import Calibrator, calibrator_from, sigmoid
from fedquilt.metrics.intervals import rate_interval, wilson
from fedquilt.metrics.labelled_images import ClassEntries, LabelledImages
from fedquilt.metrics.placements import Mask
from fedquilt.metrics.reliability import (
    MIN_ENTRIES,
    ReliabilityBin,
    brier_score,
    calibration_error,
    equal_width_bins,
    log_loss,
    recalibration,
)
from fedquilt.metrics.thresholds import Bools, Floats


def threshold_quality(
    images: LabelledImages,
    logits: npt.NDArray[np.floating[Any]],
    present: Mask,
    classes: Sequence[str],
    thresholds: Mapping[str, Any],
) -> dict[str, Any]:
    """Return, per class, what its threshold promised and what it reaches here, with intervals.

    Args:
        images: what is known of the images.
        logits: (N, C).
        present: (N, C) the decisions.
        classes: the names of the columns.
        thresholds: each class's stored threshold; a class without one is left out.
    """
    found = {}
    for column, name in enumerate(classes):
        if name in thresholds and logits.shape[0]:
            entries = images.of_class(column)
            called = present[entries.rows, column]
            stored = thresholds[name]
            found[name] = {
                "promised": {kind: stored.get(kind) for kind in ("sensitivity", "specificity")},
                "sensitivity": _rate(images, entries, entries.positive, called),
                "specificity": _rate(images, entries, ~entries.positive, ~called),
            }
    return found


def _rate(
    images: LabelledImages, entries: ClassEntries, among: Bools, right: Bools
) -> dict[str, Any]:
    """Return the share that is right, with its interval over patients."""
    interval = rate_interval(images.sums(entries, among & right), images.sums(entries, among))
    return {
        "value": interval.value,
        "low": interval.low,
        "high": interval.high,
        "right": int((among & right).sum()),
        "of": int(among.sum()),
    }


def calibration_quality(
    images: LabelledImages,
    logits: npt.NDArray[np.floating[Any]],
    classes: Sequence[str],
    calibration: Mapping[str, Any],
) -> dict[str, Any]:
    """Return, per class, how well its probabilities are calibrated: raw, and after calibration.

    Undefined numbers are NaN or None.
    """
    found = {}
    for column, name in enumerate(classes):
        entries = images.of_class(column)
        kept = logits[entries.rows, column].astype(np.float64)
        found[name] = {"raw": reliability(sigmoid(kept), entries.positive)}
        calibrator: Calibrator | None = calibrator_from(calibration.get(name, {}))
        if calibrator is not None:
            after = reliability(calibrator.probabilities(kept), entries.positive)
            found[name]["calibrated"] = after
    return found


def reliability(probabilities: Floats, positive: Bools) -> dict[str, Any]:
    """Return Brier score, log-loss, slope, intercept, ECE and the bins of the diagram."""
    line = recalibration(probabilities, positive)
    bins = equal_width_bins(probabilities, positive)
    return {
        "entries": len(probabilities),
        "brier": brier_score(probabilities, positive),
        "log_loss": log_loss(probabilities, positive),
        "slope": None if line is None else [line.slope, *line.slope_interval],
        "intercept": None if line is None else [line.intercept, *line.intercept_interval],
        "in_the_large": None if line is None else line.in_the_large,
        "ece": calibration_error(bins) if len(probabilities) >= MIN_ENTRIES else None,
        "bins": _columns([each for each in bins if each.count]),
    }


def _columns(bins: Sequence[ReliabilityBin]) -> dict[str, list[Any]]:
    """Return the bins as columns, with Wilson's interval of each share of positives."""
    intervals = [wilson(each.positives, each.count) for each in bins]
    return {
        "from": [each.low for each in bins],
        "to": [each.high for each in bins],
        "count": [each.count for each in bins],
        "positives": [each.positives for each in bins],
        "mean_probability": [each.mean_probability for each in bins],
        "low": [low for low, _ in intervals],
        "high": [high for _, high in intervals],
    }
