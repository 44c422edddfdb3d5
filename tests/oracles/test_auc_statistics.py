"""The AUC's variance, intervals and paired tests against numbers of other packages."""

from __future__ import annotations

import csv
from itertools import product
from math import sqrt
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import rankdata
from support.t16 import PATIENTS, POSITIVE, S, T, U, both_classes, of

from fedquilt.metrics.class_intervals import macro_auc
from fedquilt.metrics.intervals import auc_interval, logit_interval, newcombe, quantile
from fedquilt.metrics.labelled_images import LabelledImages
from fedquilt.metrics.paired import auc_difference, normal_difference, permutation_p_values, swaps
from fedquilt.metrics.placements import Influence, influence, sum_of_squares


def near(*values: float, to: float = 5e-10) -> object:
    return pytest.approx(values[0] if len(values) == 1 else values, abs=to)


def covariance(one: Influence, other: Influence) -> float:
    return float(one.of_patients @ other.of_patients)


def test_auc_and_delong():
    assert [of(each).auc for each in (S, T, U)] == near([0.8333333333, 0.8, 0.5083333333], to=1e-9)
    assert of(S).variance == near(0.0113148148148)
    assert of(T).variance == near(0.0163950617284)
    assert covariance(of(S), of(T)) == near(0.0104660493827)
    assert logit_interval(of(S).auc, sqrt(of(S).variance)) == near(0.527062595, 0.957324587)
    assert logit_interval(of(T).auc, sqrt(of(T).variance)) == near(0.454574093, 0.950489614)


def test_walds_interval_leaves_the_scale():
    """What other packages print, and the reason for ours: 1.04 is no AUC."""
    half = quantile() * sqrt(of(S).variance)
    assert (of(S).auc - half, of(S).auc + half) == near(0.624849772, 1.041816894)


def test_paired_delong():
    found = auc_difference(of(S), of(T))
    assert found.value == near(0.0333333333)
    assert found.error**2 == near(0.00677777778)
    assert (found.value / found.error, found.p) == near(0.404888165, 0.685559718)
    assert (found.low, found.high) == near(-0.128025132, 0.194691798)  # symmetric about d
    other = auc_difference(of(S), of(U))
    assert (other.value, other.value / other.error, other.p) == near(
        0.325, 2.27487011, 0.0229137228, to=5e-9
    )


def all_pairs(scores: np.ndarray, patients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """X and Y of Obuchowski's formulas, from every pair of a positive and a negative."""
    m, n = POSITIVE.sum(), (~POSITIVE).sum()
    wins = np.zeros((16, 16))
    for i, j in product(np.flatnonzero(POSITIVE), np.flatnonzero(~POSITIVE)):
        wins[i, j] = (scores[i] > scores[j]) + 0.5 * (scores[i] == scores[j])
    auc = wins.sum() / (m * n)
    above = np.where(POSITIVE, wins.sum(1) / n - auc, 0)
    below = np.where(~POSITIVE, wins.sum(0) / m - auc, 0)
    groups = range(patients.max() + 1)
    x = np.array([above[patients == group].sum() for group in groups])
    return x, np.array([below[patients == group].sum() for group in groups])


def obuchowski(one: np.ndarray, other: np.ndarray) -> float:
    (x, y), (v, w) = all_pairs(one, PATIENTS), all_pairs(other, PATIENTS)
    s10, s01, s11 = 5 / (4 * 6) * x @ v, 6 / (5 * 10) * y @ w, 10 / 9 * (x @ w + y @ v)
    return float(s10 / 6 + s01 / 10 + s11 / 60)


def test_the_clustered_variance_is_close_to_obuchowskis():
    # 5 patients have a positive, 6 a negative. The reference itself is checked first.
    assert obuchowski(S, S) == near(0.0198058127572)
    assert obuchowski(T, T) == near(0.0310614506173)
    assert obuchowski(S, T) == near(0.0211701903292)
    x, y = all_pairs(S, PATIENTS)
    expected = sqrt(5 / 4) * x / 6 + sqrt(6 / 5) * y / 10
    assert of(S, PATIENTS).of_patients == pytest.approx(expected)
    assert of(S, PATIENTS).variance == near(0.0202266785360)


def test_intervals_and_tests_with_obuchowskis_variance():
    low, high = logit_interval(of(S).auc, sqrt(obuchowski(S, S)))
    assert (low, high) == near(0.406958910, 0.973284364)
    variance = obuchowski(S, S) + obuchowski(T, T) - 2 * obuchowski(S, T)
    found = normal_difference(of(S).auc - of(T).auc, variance)
    assert (found.value / found.error, found.p) == near(0.360980382, 0.718114112)


def test_the_macro_variance_is_near_a_jackknifes_over_patients():
    images, one, _ = both_classes()
    rows_of = images.patients
    values = []
    for patient in range(10):
        kept = rows_of != patient
        part = LabelledImages.of(images.labels[kept], images.known[kept], rows_of[kept])
        values.append(np.mean([each.auc for each in part.influences([one[kept]])]))
    error = sqrt(9 / 10 * ((np.array(values) - np.mean(values)) ** 2).sum())
    assert error == near(0.12485, to=5e-6)  # ours is 0.10773


def test_classes_with_blanks_share_patients():
    images, one, other = both_classes()
    first, second = images.influences([one])
    assert (first.variance, second.variance) == near(0.0202266785360, 0.0152432614258)
    assert covariance(first, second) == near(0.00547709953170)
    macro = macro_auc([first, second])
    assert macro["value"] == near(0.8333333333)
    assert (macro["low"], macro["high"], macro["classes"]) == near(0.522275652, 0.958101922, 2)
    mean = (first.of_patients + second.of_patients) / 2
    assert sum_of_squares(mean) == near(0.0116060347563)
    rivals = list(images.influences([other]))
    gap = sum(
        mine.of_patients - theirs.of_patients for mine, theirs in zip((first, second), rivals)
    )
    value = sum(mine.auc - theirs.auc for mine, theirs in zip((first, second), rivals)) / 2
    found = normal_difference(value, sum_of_squares(gap / 2))
    assert (found.value, found.error) == near(-0.025, 0.0435061774)
    assert (found.value / found.error, found.p) == near(-0.574631041, 0.565540854)


@pytest.mark.parametrize(
    ("auc", "m", "n", "expected"),
    [
        (5 / 6, 6, 10, (0.532940815, 0.951560955)),
        (1, 6, 10, (0.742520232, 1)),
        (1, 2, 3, (0.438912389, 1)),
        (1, 10, 100, (0.891316649, 1)),
        (0.75, 1, 4, (0.203497511, 0.970677458)),
        (0.823678861788618, 41, 72, (0.726883561, 0.888566813)),
    ],
)
def test_newcombe(auc: float, m: int, n: int, expected: tuple[float, float]):
    assert newcombe(auc, m, n) == near(*expected)


def test_newcombe_at_an_auc_of_0():
    assert newcombe(0, 6, 10) == near(0, 1 - 0.742520232)  # V(x) is the same with 1 - x


def test_permutation_of_ranks():
    p = permutation_p_values([swaps(S, U, POSITIVE, PATIENTS), swaps(S, T, POSITIVE, PATIENTS)])
    assert p == [12 / 1024, 696 / 1024]


def tried_swaps(one: np.ndarray, other: np.ndarray) -> int:
    """In how many of the 1,024 swaps of patients the AUCs differ as much as without any."""

    def difference(swapped: np.ndarray) -> float:
        pair = np.where(swapped, other, one), np.where(swapped, one, other)
        return of(pair[0]).auc - of(pair[1]).auc

    observed = abs(difference(np.zeros(16, dtype=bool)))
    tried = (np.array(signs, dtype=bool)[PATIENTS] for signs in product((0, 1), repeat=10))
    return sum(abs(difference(swapped)) >= observed - 1e-12 for swapped in tried)


def test_ranks_are_swapped_because_raw_scores_are_not_exchangeable():
    ranks = [rankdata(each) for each in (S, T, U)]
    assert (tried_swaps(S, U), tried_swaps(S, T)) == (72, 708)  # raw
    assert (tried_swaps(ranks[0], ranks[2]), tried_swaps(ranks[0], ranks[1])) == (12, 696)


def test_the_swaps_add_up_to_the_difference():
    """Of any subset of swapped patients, against two AUCs computed anew from mixed ranks."""
    added = swaps(S, U, POSITIVE, PATIENTS)
    ranks = [
        np.searchsorted(np.sort(s), s) + np.searchsorted(np.sort(s), s, "right") for s in (S, U)
    ]
    for chosen in ([], [0], [4, 5], [1, 2, 6, 9], list(range(10))):
        is_swapped = np.isin(PATIENTS, chosen)
        one, other = (np.where(is_swapped, b, a) for a, b in (ranks, ranks[::-1]))
        expected = of(one.astype(float)).auc - of(other.astype(float)).auc
        signs = np.where(np.isin(np.arange(10), chosen), -1, 1)
        assert signs @ added / (4 * 6 * 10) == pytest.approx(expected)


@pytest.fixture(scope="module")
def asah(shared_folder: Path) -> dict[str, Influence]:
    with (shared_folder / "data" / "asah.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    poor = np.array([row["outcome"] == "Poor" for row in rows])
    assert (len(rows), poor.sum()) == (113, 41)
    patients = np.arange(len(rows))
    return {
        name: influence(np.array([float(row[name]) for row in rows]), poor, patients, len(rows))
        for name in ("wfns", "ndka", "s100b")
    }


DELONG = {
    "wfns": (0.748534888, 0.898822836),
    "ndka": (0.501244999271703, 0.722670989888189),
    "s100b": (0.630118212, 0.832618916),
}


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "auc", "variance", "low", "high"),
    [
        ("wfns", 0.823678861788618, 0.00146991470882363, 0.735764097, 0.886841844),
        ("ndka", 0.611957994579946, 0.0031908105493913, 0.497330566, 0.715404234),
        ("s100b", 0.731368563685637, 0.00266868245717244, 0.619216939, 0.820085750),
    ],
)
def test_published_aucs(asah, name: str, auc: float, variance: float, low: float, high: float):
    assert asah[name].auc == near(auc, to=1e-12)
    assert asah[name].variance == near(variance, to=1e-12)
    assert asah[name].variance_of_images == near(variance, to=1e-12)
    half = quantile() * sqrt(variance)
    assert (auc - half, auc + half) == near(*DELONG[name], to=5e-10)  # as pROC prints it
    interval = auc_interval(asah[name])  # 41 patients of the rarer kind
    assert (interval.low, interval.high, interval.rule) == (near(low), near(high), "logit")


@pytest.mark.shared
@pytest.mark.parametrize(
    ("one", "other", "z", "p", "shared_variance"),
    [
        ("wfns", "s100b", 2.20898359144091, 0.0271757822291882, 0.00119615567376754),
        ("wfns", "ndka", 2.79777591868904, 0.00514557970691098, -0.000532967856762438),
        ("ndka", "s100b", -1.39077002573558, 0.164295175223054, -0.000756164938056579),
    ],
)
def test_published_paired_tests(asah, one, other, z, p, shared_variance):
    found = auc_difference(asah[one], asah[other])
    assert (found.value / found.error, found.p) == near(z, p, to=1e-11)
    assert covariance(asah[one], asah[other]) == near(shared_variance, to=1e-12)
