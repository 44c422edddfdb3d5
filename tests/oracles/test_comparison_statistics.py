"""Corrections for several tests, seeds, data sets and sites, against published numbers."""

from __future__ import annotations

from math import nan, sqrt

import numpy as np
import pytest
from scipy.stats import wilcoxon

from fedquilt.metrics.across_data_sets import critical_value, friedman, friedman_of_ranks
from fedquilt.metrics.across_seeds import (
    seed_difference,
    smallest_wilcoxon_p,
    variance_with_seeds,
)
from fedquilt.metrics.across_sites import random_effects
from fedquilt.metrics.paired import benjamini_hochberg, holm

P = (0.01, 0.04, 0.03, 0.005, 0.2)
A = (0.912, 0.905, 0.921, 0.917, 0.909)
B = (0.901, 0.899, 0.915, 0.905, 0.904)
DIFFERENCES = [a - b for a, b in zip(A, B)]
DATA_SETS = [
    [0.91, 0.89, 0.93, 0.95],
    [0.85, 0.86, 0.88, 0.90],
    [0.78, 0.74, 0.79, 0.80],
    [0.93, 0.92, 0.94, 0.96],
    [0.70, 0.69, 0.75, 0.72],
]


def near(*values: float, to: float = 5e-9) -> object:
    return pytest.approx(values, abs=to)


def test_corrections():
    assert holm(P) == near(0.04, 0.09, 0.09, 0.025, 0.2)
    assert benjamini_hochberg(P) == near(0.025, 0.05, 0.05, 0.025, 0.2)


def test_an_undefined_p_is_not_counted():
    with_gap = [*P[:2], nan, *P[2:]]
    assert holm(with_gap) == pytest.approx([0.04, 0.09, nan, 0.09, 0.025, 0.2], nan_ok=True)
    assert benjamini_hochberg([nan, 0.03]) == pytest.approx([nan, 0.03], nan_ok=True)


def test_seeds():
    found = seed_difference(DIFFERENCES)
    assert (found.mean, found.deviation) == near(0.008, 0.00324037035)
    assert (found.t, found.p) == near(5.52052447, 0.00525696421)
    assert (found.low, found.high) == near(0.00397654880, 0.0120234512)
    three = seed_difference(DIFFERENCES[:3])
    assert (three.t, three.p) == near(4.6, 0.0441526198)
    own_splits = seed_difference(DIFFERENCES, test_to_train=0.2 / 0.8)
    assert (own_splits.t, own_splits.p) == near(3.68034965, 0.0211974526)


def test_one_seed_says_nothing():
    found = seed_difference([0.01])
    assert found.mean == 0.01
    assert np.isnan([found.deviation, found.t, found.p, found.low, found.high]).all()


@pytest.mark.parametrize(
    ("count", "smallest", "half"),
    [(3, 0.25, 2.484138), (4, 0.125, 1.591223), (5, 0.0625, 1.241664), (6, 0.03125, 1.049436)],
)
def test_few_seeds_cannot_be_significant(count: int, smallest: float, half: float):
    assert smallest_wilcoxon_p(count) == smallest
    assert wilcoxon(np.arange(1, count + 1)).pvalue == smallest
    values = np.array([1.0, -1] * 3)[:count]
    found = seed_difference(values.tolist())
    assert (found.high - found.low) / 2 / found.deviation == pytest.approx(half, abs=5e-7)


def test_seeds_do_not_shrink_the_patients_part():
    unit = [0.004 * sqrt(4 / 5) * sign for sign in (1, 1, -1, -1)] + [0.0]
    scaled = [each * 0.004 / np.std(unit, ddof=1) for each in unit]
    assert sqrt(variance_with_seeds(scaled, 0.015**2)) == pytest.approx(0.0151062901, abs=5e-10)
    assert variance_with_seeds([0.3], 0.25) == 0.25


def test_friedman():
    found = friedman(DATA_SETS)
    assert found.mean_ranks == near(3.2, 3.8, 1.8, 1.2)
    assert (found.chi2, found.p, found.f) == near(13.08, 0.00446675637, 27.25)
    assert found.critical_difference == pytest.approx(2.09760566, abs=5e-9)
    nemenyi = found.nemenyi
    assert (nemenyi[0, 1], nemenyi[0, 2]) == near(0.883087, 0.315940, to=5e-7)
    assert (nemenyi[0, 3], nemenyi[1, 3]) == near(0.068119, 0.007913, to=5e-7)
    assert found.against(3) == near(0.0286118, 0.0043526, 0.4624327, to=5e-8)


def test_demsars_example():
    found = friedman_of_ranks([44 / 14, 28 / 14, 40.5 / 14, 27.5 / 14], 14)
    assert (found.chi2, found.f) == near(9.2786, 3.6863, to=5e-5)
    assert found.critical_difference == pytest.approx(1.253559, abs=5e-7)


def test_ties_share_their_ranks():
    assert friedman([[0.5, 0.5, 0.1]] * 5).mean_ranks == (1.5, 1.5, 3.0)


def test_one_order_everywhere():
    found = friedman([[3, 2, 1]] * 5)
    assert (found.f, found.f_p) == (np.inf, 0.0)


def test_critical_values():
    published = (1.959964, 2.343701, 2.569032, 2.727774, 2.849705, 2.948320, 3.030878, 3.101730)
    assert [critical_value(k) for k in range(2, 11)] == near(*published, 3.163684, to=5.1e-7)


def test_random_effects_over_sites():
    found = random_effects([1.5, 1.1, 2.0], [0.04, 0.09, 0.06])
    assert (found.between, found.mean) == near(0.109736842, 1.55365712)
    assert (found.error, found.low, found.high) == near(0.251489759, 0.471584, 2.635730, to=5e-7)


def test_sites_that_agree():
    found = random_effects([1.0, 1.2], [0.1, 0.1])
    assert (found.between, found.mean) == (0.0, pytest.approx(1.1))
