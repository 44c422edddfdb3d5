"""Thresholds of sixteen images, worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.sixteen_images import KNOWN, LABELS, SCORES

from fedquilt.core.errors import UserError
from fedquilt.metrics.threshold_rules import read_rule
from fedquilt.metrics.thresholds import (
    cheapest_probability,
    choose,
    cutoffs_of_scores,
    expected_cost,
    reason_not_to_fit,
)

CUTOFFS = cutoffs_of_scores(SCORES, LABELS, KNOWN)


@pytest.mark.parametrize(
    ("rule", "threshold", "sensitivity", "specificity"),
    [
        ("youden", 0.8, 0.5, 1.0),
        ("f1", 0.8, 0.5, 1.0),
        ("sensitivity>=0.80", 0.4, 5 / 6, 0.6),
        ("sensitivity>=0.90", 0.3, 1.0, 0.4),
        ("sensitivity>=0.95", 0.3, 1.0, 0.4),
        ("specificity>=0.80", 0.6, 4 / 6, 0.8),
        ("specificity>=0.90", 0.7, 0.5, 0.9),
        ("specificity>=0.95", 0.8, 0.5, 1.0),
        ("cost 5:1", 0.3, 1.0, 0.4),
        ("cost 1:1", 0.8, 0.5, 1.0),
        ("cost 10:1 at 0.05", 0.8, 0.5, 1.0),
    ],
)
def test_each_rule(rule: str, threshold: float, sensitivity: float, specificity: float):
    place = choose(read_rule(rule), CUTOFFS)
    assert CUTOFFS.logits[place] == threshold
    assert CUTOFFS.sensitivity()[place] == pytest.approx(sensitivity)
    assert CUTOFFS.specificity()[place] == pytest.approx(specificity)


def test_the_cutoffs_count_everything_at_or_above_them():
    assert CUTOFFS.logits.tolist() == [math.inf, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1]
    assert CUTOFFS.true_positives.tolist() == [0, 1, 3, 3, 4, 4, 5, 6, 6, 6]
    assert CUTOFFS.false_positives.tolist() == [0, 0, 0, 1, 2, 3, 4, 6, 8, 10]


def test_costs():
    def least(rule: str) -> float:
        return float(expected_cost(read_rule(rule), CUTOFFS).min())

    assert least("cost 5:1") == pytest.approx(0.375)
    assert least("cost 1:1") == pytest.approx(0.1875)
    assert least("cost 10:1 at 0.05") == pytest.approx(0.25)
    assert cheapest_probability(read_rule("cost 5:1 calibrated")) == pytest.approx(1 / 6)


def test_of_equally_good_thresholds_the_larger_is_chosen():
    # F1 is 2/3 at .8 (6/9), .6 (8/12), .4 (10/15) and .3 (12/18).
    f1 = 2 * CUTOFFS.true_positives / (CUTOFFS.true_positives + CUTOFFS.false_positives + 6)
    assert [t for t, v in zip(CUTOFFS.logits, f1) if v == f1.max()] == [0.8, 0.6, 0.4, 0.3]


def test_what_is_not_annotated_changes_nothing():
    known = np.append(KNOWN, [False, False])
    scores, labels = np.append(SCORES, [5.0, -3.0]), np.append(LABELS, [0, 7])
    masked = cutoffs_of_scores(scores, labels, known)
    assert masked.logits.tolist() == CUTOFFS.logits.tolist()
    assert masked.true_positives.tolist() == CUTOFFS.true_positives.tolist()
    assert masked.false_positives.tolist() == CUTOFFS.false_positives.tolist()
    order = np.random.default_rng(0).permutation(16)
    assert choose(read_rule("f1"), cutoffs_of_scores(SCORES[order], LABELS[order], KNOWN)) == 2


def test_a_class_without_entries_has_only_the_cutoff_that_calls_nothing():
    empty = cutoffs_of_scores(SCORES, LABELS, ~KNOWN)
    assert empty.logits.tolist() == [math.inf]
    assert empty.positives == empty.negatives == 0


def test_why_a_rule_is_not_fitted():
    youden, sensitivity = read_rule("youden"), read_rule("sensitivity>=0.95")
    assert reason_not_to_fit(youden, 10, 10, (0.51, 0.9)) is None
    assert reason_not_to_fit(sensitivity, 10, 0, None) is None
    assert reason_not_to_fit(sensitivity, 9, 900, (0.9, 0.95)) == (
        "9 positive patients; at least 10 are needed"
    )
    assert reason_not_to_fit(read_rule("specificity>=0.9"), 50, 9, (0.9, 0.95)) == (
        "9 negative patients; at least 10 are needed"
    )
    for rule in ("youden", "f1"):
        reason = reason_not_to_fit(read_rule(rule), 50, 50, (0.45, 0.7))
        assert reason is not None
        assert "interval 0.450 to 0.700" in reason
        assert reason_not_to_fit(read_rule(rule), 50, 50, None) == "its AUC is undefined"
    assert reason_not_to_fit(read_rule("cost 5:1"), 50, 50, (0.45, 0.7)) is None


@pytest.mark.parametrize(
    "text",
    [
        *("fixed", "youden", "f1", "sensitivity>=0.95", "specificity>=0.9", "cost 5:1", "0.2"),
        *("cost 5:1 at 0.05", "cost 5:1 calibrated"),
    ],
)
def test_a_rule_is_written_as_it_is_read(text: str):
    rule = read_rule(text)
    assert rule.text == text
    assert read_rule(rule.text) == rule
    assert rule.is_fitted == (text not in ("fixed", "0.2"))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("yuoden", "'yuoden' is no rule"),
        ("sensitivity>=95", "asks for 95"),
        ("sensitivity>=x", "'x' in 'sensitivity>=x' is not a number"),
        ("cost 0:1", "must be positive numbers"),
        ("cost 5:1 at 1", "must be between 0 and 1"),
        ("1.5", "must be between 0 and 1"),
        ("nan", "must be between 0 and 1"),
        ("", "'' is no rule"),
    ],
)
def test_other_text_is_refused(text: str, complaint: str):
    with pytest.raises(UserError, match=complaint):
        read_rule(text)
