"""Points of the ROC, precision-recall and reliability curves of one class, few enough to draw."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedquilt.metrics.calibration import Calibrator, sigmoid
from fedquilt.metrics.reliability import (
    MIN_ENTRIES,
    brier_score,
    calibration_error,
    equal_width_bins,
    recalibration,
)

Floats: TypeAlias = NDArray[np.floating[Any]]

FEW_IN_BIN = 10  # entries; with fewer a point of the reliability diagram is drawn hollow
Z = 1.959963984540054  # of a two-sided 95 % interval


@dataclass(frozen=True)
class Bin:
    """One group of images with similar probabilities."""

    predicted: float  # mean probability
    observed: float  # share of positives
    low: float  # Wilson 95 % interval of that share
    high: float
    entries: int


@dataclass(frozen=True)
class Reliability:
    """How well the probabilities of a class are calibrated, on the test images."""

    entries: int  # annotated test images
    bins: tuple[Bin, ...] = ()
    error: float | None = None  # ECE
    brier: float | None = None
    slope: tuple[float, float, float] | None = None  # with its 95 % interval
    intercept: tuple[float, float, float] | None = None


@dataclass(frozen=True)
class Curves:
    """Points (x, y) from 0 to 1; a curve that is not defined has no points."""

    roc: tuple[tuple[float, float], ...] = ()  # 1 - specificity, sensitivity
    precision_recall: tuple[tuple[float, float], ...] = ()  # recall, precision
    raw: Reliability | None = None  # the network's scores
    calibrated: Reliability | None = None  # what the calibration of model.json makes of them


def curves_of(
    logits: Floats,
    positive: Any,
    *,
    most_points: int,
    is_short: bool,
    calibrator: Calibrator | None = None,
) -> Curves:
    """Return the curves of the annotated entries of a class, one logit and one bool each.

    Args:
        logits: (n,).
        positive: (n,) bool.
        most_points: of a curve.
        is_short: leave out all but the ROC curve.
        calibrator: of the class, if it is calibrated.
    """
    count, found = len(logits), int(positive.sum())
    if found in (0, count):
        return Curves()
    order = np.argsort(-logits, kind="stable")
    ranked, hits = logits[order], positive[order]
    is_last = np.append(ranked[1:] != ranked[:-1], True)  # of equal scores: one point for all
    true_positives = np.cumsum(hits)[is_last]
    false_positives = np.cumsum(~hits)[is_last]
    sensitivity = np.concatenate(([0.0], true_positives / found))
    alarms = np.concatenate(([0.0], false_positives / (count - found)))
    roc = _thinned(alarms, sensitivity, most_points)
    if is_short:
        return Curves(roc=roc)
    precision = true_positives / (true_positives + false_positives)
    recall = _thinned(sensitivity[1:], precision, most_points)
    scores = logits.astype(np.float64)
    return Curves(
        roc,
        recall,
        _reliability(sigmoid(scores), positive),
        None if calibrator is None else _reliability(calibrator.probabilities(scores), positive),
    )


def _thinned(xs: Floats, ys: Floats, most: int) -> tuple[tuple[float, float], ...]:
    """Return at most ``most`` of the points, evenly spaced along the curve, with both ends."""
    if len(xs) > most:
        way = np.concatenate(([0.0], np.cumsum(np.abs(np.diff(xs)) + np.abs(np.diff(ys)))))
        wanted = np.linspace(0.0, way[-1], most)
        kept = np.unique(np.clip(np.searchsorted(way, wanted), 0, len(xs) - 1))
        xs, ys = xs[kept], ys[kept]
    return tuple(zip(xs.tolist(), ys.tolist()))


def _bins(probabilities: NDArray[np.float64], positive: Any) -> tuple[Bin, ...]:
    found = []
    for each in equal_width_bins(probabilities, positive):
        if each.count:
            low, high = wilson(each.positives, each.count)
            found.append(Bin(each.mean_probability, each.share, low, high, each.count))
    return tuple(found)


def _reliability(probabilities: NDArray[np.float64], positive: Any) -> Reliability:
    if len(positive) < MIN_ENTRIES:
        return Reliability(entries=len(positive))
    line = recalibration(probabilities, positive)
    return Reliability(
        entries=len(positive),
        bins=_bins(probabilities, positive),
        error=calibration_error(equal_width_bins(probabilities, positive)),
        brier=brier_score(probabilities, positive),
        slope=None if line is None else (line.slope, *line.slope_interval),
        intercept=None if line is None else (line.intercept, *line.intercept_interval),
    )


def wilson(hits: int, count: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share."""
    share, z2 = hits / count, Z * Z
    centre = (share + z2 / (2 * count)) / (1 + z2 / count)
    half = Z / (1 + z2 / count) * math.sqrt(share * (1 - share) / count + z2 / (4 * count**2))
    low = 0.0 if hits == 0 else centre - half
    return low, 1.0 if hits == count else centre + half


def polyline(points: Sequence[tuple[float, float]], size: int, digits: int) -> str:
    """Return the points of an SVG polyline in a square of ``size``, y upwards."""
    return " ".join(f"{size * x:.{digits}f},{size * (1 - y):.{digits}f}" for x, y in points)
