"""Decisions: stored thresholds, fixed ones, and classes that are not judged."""

from __future__ import annotations

import math

import pytest
import torch

from fedquilt.core.errors import UserError
from fedquilt.runs.decisions import NOT_ANNOTATED, decisions

LOGITS = torch.tensor([[-2.0, 0.0, 3.0, 0.0], [-2.5, -0.1, -3.0, 0.0]])
PROBABILITIES = torch.sigmoid(LOGITS)


def card(**changes):
    fitted = {
        "a": {"logit": -2.0, "probability": 1 / (1 + math.exp(2)), "positives": 40},
        "b": {"logit": 0.0, "probability": 0.5, "fallback": "3 positives; at least 10 are needed"},
        "c": {"probability": None, "fallback": "no positives"},
    }
    return {
        "classes": ["a", "b", "c", "d"],
        "threshold": 0.5,
        "strict": False,
        "annotated": {"global": ["a", "b", "c"], "East": ["d"]},
        "thresholds": {"rule": "sensitivity>=0.95", "classes": fitted},
    } | changes


def words(rules):
    return rules.words(rules.present(LOGITS, PROBABILITIES))


def test_stored_thresholds_decide():
    rules = decisions(card(), "global", None)
    # a: fitted at -2, which counts; b: falls back to 0.5; c: has none; d: nobody annotated it
    assert words(rules) == [
        ["present", "present", "not judged", "not judged"],
        ["absent", "absent", "not judged", "not judged"],
    ]
    assert [rule.why for rule in rules.rules] == [
        *(None, "3 positives; at least 10 are needed", "no positives", NOT_ANNOTATED),
    ]


def test_a_given_threshold_replaces_the_stored_ones():
    rules = decisions(card(), "global", 0.04)  # sigmoid(-3) = 0.047
    assert words(rules)[1] == ["present", "present", "present", "not judged"]
    assert [rule.probability for rule in rules.rules] == [0.04, 0.04, 0.04, None]


@pytest.mark.parametrize(("strict", "word"), [(False, "present"), (True, "absent")])
def test_without_stored_thresholds_the_fixed_one_decides(strict: bool, word: str):
    fixed = card(strict=strict)
    del fixed["thresholds"]
    rules = decisions(fixed, "East", None)
    assert words(rules)[0] == ["not judged", "not judged", "not judged", word]  # exactly 0.5


def test_the_fitted_logit_is_exact_where_probabilities_are_equal():
    """In float32 the sigmoid of 17 and of 18 is 1."""
    classes = {"a": {"logit": 17.5, "probability": 1.0}}
    only = {"classes": ["a"], "threshold": 0.5, "strict": False, "annotated": {"global": ["a"]}}
    rules = decisions(only | {"thresholds": {"classes": classes}}, "global", None)
    logits = torch.tensor([[17.0], [18.0]])
    assert rules.present(logits, torch.sigmoid(logits)).tolist() == [[False], [True]]


def test_thresholds_by_hand_for_some_classes():
    rules = decisions(card(), "global", {"a": 0.9, "c": 0.9})
    assert [rule.probability for rule in rules.rules] == [0.9, 0.5, 0.9, None]
    assert words(rules)[0] == ["absent", "present", "present", "not judged"]
    with pytest.raises(UserError, match="no class 'e'"):
        decisions(card(), "global", {"e": 0.9})


def test_calibrated_probabilities():
    fits = {"a": {"slope": 2.0, "intercept": 1.0}, "b": {"fallback": "3 positive patients"}}
    rules = decisions(card(calibration={"method": "platt", "classes": fits}), "global")
    found = rules.calibrated(LOGITS)
    assert found[0] == [pytest.approx(1 / (1 + math.exp(3))), None, None, None]
    assert rules.calibrated(LOGITS[:0]) == []


def test_a_clients_own_model_has_its_own_thresholds():
    own = {"thresholds": {"rule": "youden", "classes": {"d": {"logit": 1.0, "probability": 0.73}}}}
    rules = decisions(card(by_client={"East": own}), "East")
    assert rules.rules[3].logit == 1.0
    assert words(rules)[0][3] == "absent"
