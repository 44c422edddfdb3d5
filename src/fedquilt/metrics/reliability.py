"""How well the probabilities of one class are calibrated: measures and the reliability diagram."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedquilt.metrics.calibration import (
    CLIP,
    PLAIN,
    Line,
    Outcomes,
    fit_offset,
    fit_platt,
    logit,
    newton_sums,
)
from fedquilt.metrics.thresholds import Bools, Floats

BINS = 10
MIN_ENTRIES = 100  # below, the ECE is about as large as its own bias
Z95 = 1.959963984540054  # quantile of the normal distribution for 95 % intervals


def brier_score(probabilities: Floats, positive: Bools) -> float:
    """Return the mean squared distance from the label; NaN without entries."""
    return _mean((probabilities - positive) ** 2)


def log_loss(probabilities: Floats, positive: Bools) -> float:
    """Return the mean negative log-likelihood; NaN without entries."""
    p = np.clip(probabilities, CLIP, 1 - CLIP)
    return _mean(-np.where(positive, np.log(p), np.log1p(-p)))


@dataclass(frozen=True)
class Recalibration:
    """The line that would calibrate probabilities: slope 1 and intercept 0 if they are.

    A slope below 1 means too sure; an intercept below 0, with the slope, means too many positives
    promised.
    """

    slope: float
    intercept: float
    slope_error: float  # standard errors
    intercept_error: float
    in_the_large: float  # intercept with slope 1

    @property
    def slope_interval(self) -> tuple[float, float]:
        return self.slope - Z95 * self.slope_error, self.slope + Z95 * self.slope_error

    @property
    def intercept_interval(self) -> tuple[float, float]:
        half = Z95 * self.intercept_error
        return self.intercept - half, self.intercept + half


def recalibration(probabilities: Floats, positive: Bools) -> Recalibration | None:
    """Return calibration slope and intercept; None if the labels are separated or of one kind."""
    if positive.all() or not positive.any():
        return None
    outcomes = Outcomes(
        logit(probabilities), positive.astype(np.float64), (~positive).astype(np.float64)
    )
    if _is_separated(outcomes.logits, positive):
        return None
    line, offset = fit_platt(outcomes, PLAIN), fit_offset(outcomes)
    if line is None or offset is None:
        return None
    sums = newton_sums(outcomes, Line(line.slope, line.intercept))
    determinant = sums.curvature_squared * sums.curvature - sums.curvature_logit**2
    return Recalibration(
        line.slope,
        line.intercept,
        math.sqrt(sums.curvature / determinant),
        math.sqrt(sums.curvature_squared / determinant),
        offset,
    )


def _is_separated(logits: Floats, positive: Bools) -> bool:
    """Whether one threshold tells all positives from all negatives: the slope is then infinite."""
    hits, others = logits[positive], logits[~positive]
    return bool(hits.min() >= others.max() or hits.max() <= others.min())


@dataclass(frozen=True)
class ReliabilityBin:
    """Entries with similar probabilities: what was promised and what came true."""

    low: float
    high: float
    count: int
    positives: int
    mean_probability: float  # NaN in an empty bin

    @property
    def share(self) -> float:
        return self.positives / self.count if self.count else math.nan


def equal_width_bins(
    probabilities: Floats, positive: Bools, count: int = BINS
) -> list[ReliabilityBin]:
    edges = np.linspace(0, 1, count + 1)
    place = np.clip(np.digitize(probabilities, edges) - 1, 0, count - 1)
    return [
        _bin(edges[number], edges[number + 1], probabilities, positive, place == number)
        for number in range(count)
    ]


def equal_mass_bins(
    probabilities: Floats, positive: Bools, count: int = BINS
) -> list[ReliabilityBin]:
    order = np.argsort(probabilities, kind="stable")
    parts = [part for part in np.array_split(order, count) if len(part)]
    bins = []
    for part in parts:
        inside = np.zeros(len(probabilities), dtype=bool)
        inside[part] = True
        ends = probabilities[part[0]], probabilities[part[-1]]
        bins.append(_bin(*ends, probabilities, positive, inside))
    return bins


def _bin(
    low: float, high: float, probabilities: Floats, positive: Bools, inside: Bools
) -> ReliabilityBin:
    return ReliabilityBin(
        float(low),
        float(high),
        int(inside.sum()),
        int((positive & inside).sum()),
        _mean(probabilities[inside]),
    )


def calibration_error(bins: list[ReliabilityBin]) -> float:
    """Return the mean gap between promise and outcome: the ECE, or the ACE of equal-mass bins."""
    total = sum(each.count for each in bins)
    gaps = [each.count * abs(each.share - each.mean_probability) for each in bins if each.count]
    return math.fsum(gaps) / total if total else math.nan


def _mean(values: Floats) -> float:
    return math.fsum(values) / len(values) if len(values) else math.nan
