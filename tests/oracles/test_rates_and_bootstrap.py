"""Intervals of rates and average precision, and the bootstrap over patients, by known numbers."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from sklearn.metrics import average_precision_score
from support.t16 import POSITIVE, S, T

from fedquilt.metrics import bootstrap
from fedquilt.metrics.bootstrap import patient_bootstrap, percentile_interval
from fedquilt.metrics.class_intervals import average_precision
from fedquilt.metrics.intervals import ap_interval, rate_interval, wilson


def near(*values: float) -> object:
    return pytest.approx(values, abs=5e-10)


@pytest.mark.parametrize(
    ("successes", "trials", "expected"),
    [
        (4, 6, (0.299993315, 0.903228589)),
        (7, 10, (0.396778147, 0.892208733)),
        (4, 7, (0.250458365, 0.841780145)),
        (7, 9, (0.452588969, 0.936774893)),
        (6, 6, (0.609665712, 1)),
        (0, 6, (0, 0.390334288)),
        (19, 20, (0.763868807, 0.991118551)),
        (1, 1, (0.206549314, 1)),
    ],
)
def test_wilson(successes: int, trials: int, expected: tuple[float, float]):
    assert wilson(successes, trials) == near(*expected)
    # The same with one trial per patient.
    hits = np.array([1.0] * successes + [0.0] * (trials - successes))
    found = rate_interval(hits, np.ones(trials))
    assert found.value == successes / trials
    assert (found.low, found.high) == near(*expected)


def test_a_share_of_clustered_trials():
    # 3 patients with 2, 2 and 4 trials, of which 2, 1 and 1 succeed: the share is 4 / 8. Residuals
    # are 1, 0 and -1, so its variance is 2 / 64, that of 0.25 / (2 / 64) = 8 independent trials.
    found = rate_interval(np.array([2.0, 1, 1]), np.array([2.0, 2, 4]))
    assert (found.low, found.high) == near(*wilson(4, 8))
    # All or nothing: 2, 0 and 4 of them. Residuals 0.5, -1.5 and 1 give 3.5 / 64 with the share
    # 6 / 8, that of 0.1875 / (3.5 / 64) = 3.42857 trials.
    found = rate_interval(np.array([2.0, 0, 4]), np.array([2.0, 2, 4]))
    assert found.value == 0.75
    assert (found.low, found.high) == near(*wilson(0.75 * 24 / 7, 24 / 7))


def test_without_variation_a_patient_counts_once():
    found = rate_interval(np.array([5.0, 3]), np.array([5.0, 3]))
    assert (found.low, found.high) == near(*wilson(2, 2))


def test_a_share_without_trials_is_undefined():
    found = rate_interval(np.zeros(3), np.zeros(3))
    assert np.isnan([found.value, found.low, found.high]).all()
    assert found.rule is None


def test_average_precision():
    assert average_precision(S, POSITIVE) == pytest.approx(0.787037037)
    assert average_precision(T, POSITIVE) == pytest.approx(0.712301587)
    assert average_precision(T, POSITIVE) == pytest.approx(average_precision_score(POSITIVE, T))
    found = ap_interval(0.7870370370, 6)
    assert (found.low, found.high) == near(0.343601572, 0.963087687)
    found = ap_interval(average_precision(T, POSITIVE), 6)
    assert (found.low, found.high) == near(0.297138472, 0.935483284)
    assert ap_interval(1.0, 6)[1:3] == near(0.609665712, 1)  # Wilson's, of 6 of 6
    assert ap_interval(0.997, 12)[1:3] == near(*wilson(0.997 * 12, 12))  # not 0.06 to 1
    assert ap_interval(0.997, 12).low == pytest.approx(0.752989, abs=5e-7)
    assert np.isnan(average_precision(S, np.zeros(16, dtype=bool)))


LABELS = np.array([1, 1, 1, 0, 0, 0, 0, 0], dtype=bool)
SCORES = np.array([0.9, 0.4, 0.6, 0.5, 0.7, 0.2, 0.3, 0.1])
OWNERS = np.array([0, 0, 1, 1, 2, 2, 3, 3])


def weighted_auc(weights: np.ndarray) -> float:
    w = weights[OWNERS]
    wins = (SCORES[LABELS][:, None] > SCORES[~LABELS]).astype(float)
    pairs = w[LABELS][:, None] * w[~LABELS]
    return float((wins * pairs).sum() / pairs.sum()) if pairs.sum() else np.nan


def test_percentiles_over_all_draws_of_four_patients():
    draws = [np.bincount(draw, minlength=4) for draw in product(range(4), repeat=4)]
    values = np.array([[weighted_auc(draw)] for draw in draws])
    defined = values[~np.isnan(values)]
    assert (len(draws), len(defined)) == (256, 239)
    assert (defined.mean(), defined.std()) == near(0.813299462, 0.113550065)
    low, high, missing = percentile_interval(values)
    assert (low[0], high[0]) == near(0.571428571, 1.0)
    assert missing == [17]


def test_whole_patients_are_drawn():
    """The sum over patients of as many images has the variance of the patients' sums."""
    counts = np.array([[4.0], [0], [0], [0]])  # all of one patient
    drawn = patient_bootstrap(counts, lambda sums: sums)
    assert drawn.shape == (bootstrap.DRAWS, 1)
    assert set(np.unique(drawn)) <= {0.0, 4, 8, 12, 16}
    assert drawn.mean() == pytest.approx(4, abs=0.3)  # 4 draws with chance 1/4 of a 4
    assert drawn.var() == pytest.approx(12, rel=0.15)  # 16 x 4 x 1/4 x 3/4


def test_patients_are_drawn_within_their_site():
    counts = np.array([[1.0], [1], [0], [0], [0]])
    drawn = patient_bootstrap(counts, lambda sums: sums, sites=np.array([7, 7, 9, 9, 9]))
    assert np.unique(drawn).tolist() == [2.0]  # always two patients of the first site


def test_a_seed_gives_the_same_draws():
    counts = np.eye(6)
    one, two = (patient_bootstrap(counts, lambda sums: sums, seed=seed) for seed in (3, 3))
    assert np.array_equal(one, two)
    assert not np.array_equal(one, patient_bootstrap(counts, lambda sums: sums, seed=4))


def test_one_positive_patient_is_missed_in_37_of_100_draws():
    drawn = patient_bootstrap(np.eye(100)[:, :1], lambda sums: sums)
    assert (drawn == 0).mean() == pytest.approx(0.366, abs=0.04)  # (1 - 1/100) ** 100
