"""Confidence intervals of an AUC, an average precision and a rate, where patients are the unit.

An AUC on fewer than 20 patients of the rarer kind gets Newcombe's method 5 (2006), otherwise the
logit interval of its variance: DeLong's usual interval covers 67 to 89 % instead of 95 % at 3 to
10 positives. ``docs/concepts/statistics.md`` explains the choice in words.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, inf, isnan, log, nan, sqrt
from statistics import NormalDist
from typing import Literal, NamedTuple, TypeAlias

from fedquilt.metrics.placements import Floats, Influence, sum_of_squares

LEVEL = 0.95
FEW_PATIENTS = 20  # of the rarer kind: below it Newcombe's interval, and tests by permutation
Rule: TypeAlias = Literal["logit", "newcombe", "wilson", "bootstrap", "mean of bounds"]


class Interval(NamedTuple):
    """An estimate with its interval; NaN where undefined."""

    value: float
    low: float
    high: float
    rule: Rule | None  # None: there is no interval


UNDEFINED = Interval(nan, nan, nan, None)


def quantile(level: float = LEVEL) -> float:
    """1.96 at a level of 95 %."""
    return NormalDist().inv_cdf(0.5 + level / 2)


def auc_interval(auc: Influence, level: float = LEVEL) -> Interval:
    """Choose the interval of a class's AUC by the number of its patients."""
    size = auc.size
    if not size.is_testable:
        return UNDEFINED
    is_degenerate = not auc.is_estimated or auc.variance == 0 or auc.variance_of_images == 0
    if is_degenerate:  # nothing can be estimated: count every patient once
        sizes: tuple[float, float] = (size.positive_patients, size.negative_patients)
    elif size.rarer_patients < FEW_PATIENTS:
        design = max(1.0, auc.variance / auc.variance_of_images)
        sizes = (max(1.0, size.positives / design), max(1.0, size.negatives / design))
    else:
        low, high = logit_interval(auc.auc, sqrt(auc.variance), level)
        return Interval(auc.auc, low, high, "logit")
    low, high = newcombe(auc.auc, *sizes, level)
    return Interval(auc.auc, low, high, "newcombe")


def logit_interval(value: float, error: float, level: float = LEVEL) -> tuple[float, float]:
    """Of a value in (0, 1) with its standard error, made on the log-odds."""
    centre = log(value / (1 - value))
    half = quantile(level) * error / (value * (1 - value))
    return _sigmoid(centre - half), _sigmoid(centre + half)


def newcombe(auc: float, m: float, n: float, level: float = LEVEL) -> tuple[float, float]:
    """Newcombe's method 5 for an AUC on m positives and n negatives, which need not be integers.

    The ends x solve (auc - x)^2 = z^2 V(x); at an AUC of 1 the upper end is 1.
    """
    z, spread = quantile(level), (m + n) / 2 - 1

    def outside(x: float) -> bool:
        shape = 1 + spread * ((1 - x) / (2 - x) + x / (1 + x))
        return (auc - x) ** 2 > z * z * x * (1 - x) / (m * n) * shape

    low = 0.0 if auc == 0 else _edge(outside, 0.0, auc)
    high = 1.0 if auc == 1 else _edge(outside, 1.0, auc)
    return low, high


def _edge(outside: Callable[[float], bool], far: float, near: float) -> float:
    """Where ``outside`` ends, between a point outside and one inside, by bisection."""
    while True:
        middle = (far + near) / 2
        if middle in (far, near):
            return middle
        if outside(middle):
            far = middle
        else:
            near = middle


def wilson(successes: float, trials: float, level: float = LEVEL) -> tuple[float, float]:
    """Wilson's score interval of a share; NaN without trials."""
    if trials <= 0:
        return nan, nan
    z, share = quantile(level), successes / trials
    scale = 1 + z * z / trials
    centre = (share + z * z / (2 * trials)) / scale
    half = z / scale * sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    low, high = max(0.0, centre - half), min(1.0, centre + half)
    return (0.0 if share == 0 else low), (1.0 if share == 1 else high)


def rate_interval(successes: Floats, trials: Floats, level: float = LEVEL) -> Interval:
    """Of a share whose trials are clustered: (P,) successes and trials of each patient.

    Wilson's interval with the number of trials that would vary as much without clusters. With one
    trial per patient that is their number.
    """
    total = float(trials.sum())
    if total == 0:
        return UNDEFINED
    share = float(successes.sum()) / total
    if share in (0, 1):  # how patients differ cannot be seen: each counts once
        effective = float((trials > 0).sum())
    else:
        variance = sum_of_squares(successes - share * trials) / total**2
        effective = min(total, share * (1 - share) / variance if variance > 0 else inf)
    low, high = wilson(share * effective, effective, level)
    return Interval(share, low, high, "wilson")


def ap_interval(ap: float, positive_patients: float, level: float = LEVEL) -> Interval:
    """Boyd, Eng & Page's logit interval (2013), or Wilson's for an AP close to 0 or 1.

    The logit interval has no width limit there: an AP of 0.997 on 12 patients would get 0.06 to 1.
    """
    if isnan(ap) or positive_patients <= 0:
        return UNDEFINED
    if positive_patients * ap * (1 - ap) < 1:
        low, high = wilson(ap * positive_patients, positive_patients, level)
        return Interval(ap, low, high, "wilson")
    low, high = logit_interval(ap, sqrt(ap * (1 - ap) / positive_patients), level)
    return Interval(ap, low, high, "logit")


def _sigmoid(x: float) -> float:
    return 1 / (1 + exp(-x)) if x >= 0 else exp(x) / (1 + exp(x))
