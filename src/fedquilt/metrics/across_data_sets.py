"""Several methods on several data sets: Friedman's test and what follows it (Demsar 2006)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import erfc, inf, sqrt

import numpy as np
import numpy.typing as npt
from scipy.special import chdtrc, fdtrc
from scipy.stats import rankdata, studentized_range

from fedquilt.metrics.intervals import LEVEL, quantile
from fedquilt.metrics.paired import holm


@dataclass(frozen=True)
class Friedman:
    """Mean ranks of the methods (1 is best), and whether they differ at all."""

    data_sets: int
    mean_ranks: tuple[float, ...]
    chi2: float  # the paper's formula, without a correction for ties
    p: float
    f: float  # Iman & Davenport's statistic, which is less conservative
    f_p: float
    critical_difference: float  # Nemenyi: two mean ranks further apart than this differ

    @property
    def nemenyi(self) -> npt.NDArray[np.float64]:
        """(k, k) p of all pairs, corrected for their number."""
        gaps = np.abs(np.subtract.outer(self.mean_ranks, self.mean_ranks)) / self._unit
        scaled = gaps * sqrt(2)
        return np.asarray(studentized_range.sf(scaled, len(self.mean_ranks), inf))

    def against(self, control: int) -> list[float]:
        """Return Holm's p of every method but the control, against the control."""
        own = self.mean_ranks[control]
        others = [rank for place, rank in enumerate(self.mean_ranks) if place != control]
        return holm([erfc(abs(rank - own) / self._unit / sqrt(2)) for rank in others])

    @property
    def _unit(self) -> float:
        k = len(self.mean_ranks)
        return sqrt(k * (k + 1) / (6 * self.data_sets))


def friedman(table: Sequence[Sequence[float]], level: float = LEVEL) -> Friedman:
    """Test a table of data sets x methods in which larger is better."""
    ranks = rankdata(-np.asarray(table, dtype=np.float64), axis=1)
    return friedman_of_ranks(ranks.mean(axis=0).tolist(), len(table), level)


def friedman_of_ranks(
    mean_ranks: Sequence[float], data_sets: int, level: float = LEVEL
) -> Friedman:
    """Test mean ranks over so many data sets."""
    n, k = data_sets, len(mean_ranks)
    squares = sum(rank * rank for rank in mean_ranks)
    chi2 = 12 * n / (k * (k + 1)) * (squares - k * (k + 1) ** 2 / 4)
    left = n * (k - 1) - chi2
    f = (n - 1) * chi2 / left if left > 0 else inf  # every data set has the same order
    return Friedman(
        data_sets=n,
        mean_ranks=tuple(mean_ranks),
        chi2=chi2,
        p=float(chdtrc(k - 1, chi2)),
        f=f,
        f_p=float(fdtrc(k - 1, (k - 1) * (n - 1), f)) if f < inf else 0.0,
        critical_difference=critical_value(k, level) * sqrt(k * (k + 1) / (6 * n)),
    )


def critical_value(methods: int, level: float = LEVEL) -> float:
    """Of Nemenyi's test: a quantile of the studentised range, divided by the root of 2."""
    if methods == 2:
        return quantile(level)
    return float(studentized_range.ppf(level, methods, inf)) / sqrt(2)
