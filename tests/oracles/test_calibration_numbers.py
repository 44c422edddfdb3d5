"""Calibration of sixteen images; numbers from statsmodels, scikit-learn and torchmetrics."""

from __future__ import annotations

import numpy as np
import pytest
from support.sixteen_images import KNOWN, LABELS, LOGITS, SCORES, SITES

from fedquilt.metrics.calibration import (
    Line,
    Outcomes,
    Steps,
    Targets,
    calibrator_from,
    fit_isotonic,
    fit_offset,
    fit_platt,
    fit_temperature,
    newton_sums,
    outcomes_of_scores,
    platt_targets,
    reason_not_to_calibrate,
)
from fedquilt.metrics.prior_shift import at_prior, estimate_prior
from fedquilt.metrics.reliability import (
    brier_score,
    calibration_error,
    equal_mass_bins,
    equal_width_bins,
    log_loss,
    recalibration,
)

OUTCOMES = outcomes_of_scores(LOGITS, LABELS, KNOWN)
POSITIVE = LABELS == 1


def near(*numbers: float) -> object:
    return pytest.approx(numbers, abs=6e-9)


def test_platt_by_plain_likelihood():
    line = fit_platt(OUTCOMES, Targets())
    assert line is not None
    assert (line.slope, line.intercept) == near(1.304030690, -0.419008739)
    after = line.probabilities(LOGITS)
    assert brier_score(after, POSITIVE) == pytest.approx(0.159027053, abs=1e-9)
    assert log_loss(after, POSITIVE) == pytest.approx(0.469590799, abs=1e-9)


def test_platt_with_platts_targets():
    targets = platt_targets(6, 10)
    assert (targets.positive, targets.negative) == near(0.875, 1 / 12)
    line = fit_platt(OUTCOMES)
    assert line is not None
    assert (line.slope, line.intercept) == near(0.889621201, -0.387213165)


def test_newton_steps_from_the_sums_of_two_sites():
    expected = [
        (1.220553216, -0.364154852),
        (1.299411000, -0.416535208),
        (1.304016981, -0.419002285),
    ]
    line = Line(1.0, 0.0)
    parts = [outcomes_of_scores(LOGITS, LABELS, site == SITES) for site in (0, 1)]
    for slope, intercept in expected:
        line = (newton_sums(parts[0], line) + newton_sums(parts[1], line)).step_from(line)
        assert (line.slope, line.intercept) == near(slope, intercept)
    for _ in range(2):  # converged in five
        line = (newton_sums(parts[0], line) + newton_sums(parts[1], line)).step_from(line)
    assert (line.slope, line.intercept) == near(1.304030690, -0.419008739)


def test_counts_at_equal_logits_are_as_good_as_single_images():
    values = np.unique(LOGITS)
    counted = Outcomes(
        values,
        np.array([float(((values[k] == LOGITS) & POSITIVE).sum()) for k in range(len(values))]),
        np.array([float(((values[k] == LOGITS) & ~POSITIVE).sum()) for k in range(len(values))]),
    )
    one, other = fit_platt(counted), fit_platt(OUTCOMES)
    assert one is not None
    assert other is not None
    assert (one.slope, one.intercept) == near(other.slope, other.intercept)


def test_temperature():
    line = fit_temperature(OUTCOMES)
    assert line is not None
    assert 1 / line.slope == pytest.approx(0.748079283, abs=1e-8)
    assert line.intercept == 0
    assert log_loss(line.probabilities(LOGITS), POSITIVE) == pytest.approx(0.483167291, abs=1e-9)


def test_raw_scores():
    assert brier_score(SCORES, POSITIVE) == pytest.approx(0.165)
    assert log_loss(SCORES, POSITIVE) == pytest.approx(0.492333196, abs=1e-9)
    assert fit_offset(OUTCOMES) == pytest.approx(-0.41473645, abs=1e-8)


def test_slope_and_intercept_with_their_errors():
    found = recalibration(SCORES, POSITIVE)
    assert found is not None
    assert (found.slope, found.intercept) == near(1.304030690, -0.419008739)
    assert (found.slope_error, found.intercept_error) == near(0.66445091, 0.64012185)
    assert found.in_the_large == pytest.approx(-0.41473645, abs=1e-8)
    low, high = found.slope_interval
    assert low == pytest.approx(1.304030690 - 1.959963985 * 0.66445091, abs=1e-7)
    assert high - low == pytest.approx(2 * 1.959963985 * 0.66445091)


def test_isotonic():
    steps = fit_isotonic(OUTCOMES)
    at = np.log(np.arange(1, 10) / np.arange(9, 0, -1))
    assert steps.probabilities(at) == pytest.approx([0, 0, *[1 / 3] * 5, 1, 1])
    assert steps.probabilities(np.array([-50.0, 50.0])).tolist() == [0, 1]


def test_calibration_errors():
    shifted = SCORES - 0.05  # off the edges of the bins, where packages differ
    for count, expected in ((4, 0.11875), (5, 0.1125), (10, 0.175), (15, 0.175)):
        bins = equal_width_bins(shifted, POSITIVE, count)
        assert calibration_error(bins) == pytest.approx(expected)
    mass = equal_mass_bins(shifted, POSITIVE, 4)
    assert [each.count for each in mass] == [4, 4, 4, 4]
    assert calibration_error(mass) == pytest.approx(0.1375)


def test_bins_count_promise_and_outcome():
    third = equal_width_bins(SCORES - 0.05, POSITIVE)[2]  # three at .25: .3 .3 .3
    assert (third.count, third.positives, third.low, third.high) == (3, 1, 0.2, pytest.approx(0.3))
    assert third.mean_probability == pytest.approx(0.25)
    assert third.share == pytest.approx(1 / 3)


def test_other_shares_of_positives():
    assert at_prior(np.array([0.3, 0.9]), 0.375, 0.05) == pytest.approx(
        [0.036231884, 0.441176471], abs=1e-9
    )
    assert SCORES.mean() == pytest.approx(0.45)  # EM's first step
    assert estimate_prior(SCORES, 0.5) == pytest.approx(0.308982441, abs=1e-9)


def test_separated_labels_have_a_slope_with_platts_targets_only():
    separated = outcomes_of_scores(np.array([-2.0, -1, 1, 2]), np.array([0, 0, 1, 1]), KNOWN[:4])
    line = fit_platt(separated)
    assert line is not None
    assert 0 < line.slope < 10
    assert recalibration(np.array([0.1, 0.2, 0.8, 0.9]), np.array([False, False, True, True])) is (
        None
    )
    assert recalibration(np.array([0.1, 0.2]), np.array([False, False])) is None


def test_equal_logits_have_no_slope():
    same = outcomes_of_scores(np.zeros(4), np.array([0, 1, 0, 1]), KNOWN[:4])
    assert fit_platt(same) is None
    assert fit_temperature(same) is None


def test_every_sample_converges_to_a_zero_gradient():
    random = np.random.default_rng(0)
    for _ in range(200):
        logits = random.normal(0, random.uniform(0.1, 6), 40)
        positive = random.random(40) < 1 / (1 + np.exp(-(1.5 * logits + 1)))
        outcomes = outcomes_of_scores(logits, positive.astype(int), np.ones(40, bool))
        line = fit_platt(outcomes)
        assert line is not None
        sums = newton_sums(outcomes, line, platt_targets(positive.sum(), 40 - positive.sum()))
        assert abs(sums.residual) + abs(sums.residual_logit) < 1e-9


def test_extreme_logits_converge():
    logits = np.array([-400.0, -90, -3, 2, 5, 80, 700, 650])
    labels = np.array([0, 0, 0, 1, 0, 1, 1, 0])
    line = fit_platt(outcomes_of_scores(logits, labels, KNOWN[:8]))
    assert line is not None
    assert np.isfinite(line.probabilities(logits)).all()
    assert 0 < line.slope < 1


def test_stored_and_read_again():
    line, steps = Line(1.5, -0.25), Steps(np.array([-1.0, 2]), np.array([0.1, 0.7]))
    assert calibrator_from(line.to_dict()) == line
    again = calibrator_from(steps.to_dict())
    assert again is not None
    assert again.probabilities(np.array([0.5])) == pytest.approx(0.4)
    assert calibrator_from({"fallback": "too few"}) is None


def test_why_a_class_is_not_calibrated():
    assert reason_not_to_calibrate("platt", 10, 10, 20, 10) is None
    assert reason_not_to_calibrate("platt", 9, 100, 109, 10) == (
        "9 positive patients; at least 10 are needed"
    )
    assert reason_not_to_calibrate("platt", 100, 3, 109, 10) == (
        "3 negative patients; at least 10 are needed"
    )
    assert reason_not_to_calibrate("isotonic", 100, 100, 999, 10) == (
        "999 annotated images; isotonic needs at least 1000"
    )


def test_what_is_not_annotated_changes_nothing():
    known = np.append(KNOWN, False)
    masked = outcomes_of_scores(np.append(LOGITS, 1e6), np.append(LABELS, 9), known)
    assert fit_platt(masked) == fit_platt(OUTCOMES)
