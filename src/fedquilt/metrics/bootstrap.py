"""A bootstrap over patients, for what has no influence per patient: F1 and calibration error."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
from scipy import sparse

from fedquilt.metrics.intervals import LEVEL
from fedquilt.metrics.placements import Floats, Integers

DRAWS = 2_000
BLOCK = 200  # draws at a time, to bound memory
MIN_POSITIVE_PATIENTS = 5  # with fewer, too many draws hold no positive at all

Statistic = Callable[[Floats], Floats]  # sums (draws, K) -> values (draws, C)


def patient_bootstrap(
    sums: Floats | sparse.spmatrix,
    statistic: Statistic,
    *,
    sites: Integers | None = None,
    seed: int = 0,
) -> Floats:
    """Return the values (draws, C) of a statistic of sums over patients.

    Patients are drawn with replacement within each site, for all classes at once. They are not
    stratified by label: a patient has many.

    Args:
        sums: (P, K) what each patient adds, such as its true positives of each class.
        statistic: computes the values of each draw from its totals.
        sites: (P,) the site of each patient, numbered; None if there is one.
        seed: of the draws.
    """
    table = sparse.csr_matrix(sums)
    return np.concatenate(
        [
            statistic(np.asarray(weights @ table, dtype=np.float64))
            for weights in _weights(table.shape[0], sites, seed)
        ]
    )


def _weights(count: int, sites: Integers | None, seed: int) -> Iterator[Floats]:
    """Yield how often each patient is in each of a block of draws, (BLOCK, P)."""
    generator = np.random.default_rng(seed)
    members = [np.arange(count)] if sites is None else _members(sites)
    for _ in range(0, DRAWS, BLOCK):
        weights = np.zeros((BLOCK, count))
        for own in members:
            drawn = generator.integers(0, len(own), (BLOCK, len(own)))
            flat = drawn + len(own) * np.arange(BLOCK)[:, None]
            counts = np.bincount(flat.ravel(), minlength=BLOCK * len(own))
            weights[:, own] = counts.reshape(BLOCK, len(own))
        yield weights


def _members(sites: Integers) -> list[npt.NDArray[np.intp]]:
    return [np.flatnonzero(sites == site) for site in np.unique(sites)]


def percentile_interval(
    values: Floats, level: float = LEVEL
) -> tuple[Floats, Floats, Sequence[int]]:
    """Return both ends per class (C,), and the number of draws in which it was undefined.

    Draws in which a class is undefined (NaN) are left out. An end is a value that was drawn.
    """
    low, high = np.full(values.shape[1], np.nan), np.full(values.shape[1], np.nan)
    missing = np.isnan(values).sum(axis=0).tolist()
    for column in range(values.shape[1]):
        defined = values[~np.isnan(values[:, column]), column]
        if len(defined):
            ends = ((1 - level) / 2, (1 + level) / 2)
            low[column], high[column] = np.quantile(defined, ends, method="inverted_cdf")
    return low, high, missing
