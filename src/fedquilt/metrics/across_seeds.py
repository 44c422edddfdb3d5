"""Two methods over several random seeds, and seeds and patients together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan, sqrt
from statistics import fmean, stdev

from scipy.special import stdtr, stdtrit

from fedquilt.metrics.intervals import LEVEL


@dataclass(frozen=True)
class SeedDifference:
    """The mean difference over seeds, with a t interval; NaN for fewer than two seeds.

    It assumes normal differences and covers chance in training only: the test images stay the same.
    """

    values: tuple[float, ...]
    mean: float
    deviation: float
    t: float
    p: float
    low: float
    high: float


def seed_difference(
    values: Sequence[float], level: float = LEVEL, *, test_to_train: float | None = None
) -> SeedDifference:
    """Test the paired differences of several seeds.

    Args:
        values: one difference per seed.
        level: of the interval.
        test_to_train: the ratio of test to training images, where each seed draws its own split;
            the differences then share images, and Nadeau & Bengio (2003) widen their variance.
    """
    count = len(values)
    mean = fmean(values) if count else nan
    if count < 2:
        return SeedDifference(tuple(values), mean, nan, nan, nan, nan, nan)
    deviation = stdev(values)
    error = deviation * sqrt(1 / count + (test_to_train or 0.0))
    half = float(stdtrit(count - 1, 0.5 + level / 2)) * error
    if error == 0:
        return SeedDifference(tuple(values), mean, 0.0, nan, nan, mean, mean)
    t = mean / error
    p = 2 * float(stdtr(count - 1, -abs(t)))
    return SeedDifference(tuple(values), mean, deviation, t, p, mean - half, mean + half)


def variance_with_seeds(differences: Sequence[float], patient_variance: float) -> float:
    """Return the variance of a mean over seeds, on patients drawn anew.

    More seeds shrink the first term only. One seed says nothing of training luck.
    """
    if len(differences) < 2:
        return patient_variance
    return stdev(differences) ** 2 / len(differences) + patient_variance


def smallest_wilcoxon_p(count: int) -> float:
    """Return the smallest two-sided p that Wilcoxon's signed-rank test can give for n pairs."""
    return min(1.0, 2.0 ** (1 - count))
