from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from fedquilt.core.errors import UserError
from fedquilt.core.settings import plain, read
from fedquilt.metrics.decision_rules import DecisionRules
from fedquilt.metrics.evaluation import Evaluation
from fedquilt.metrics.fitting import (
    ClassSample,
    fit_calibration,
    fit_thresholds,
    given_thresholds,
    sample_of_scores,
)

# 12 patients with a positive at logit 1 (one missed, at -1), 12 with a negative at -1 (one at 1).
LOGITS = np.array([1.0] * 11 + [-1.0] + [-1.0] * 11 + [1.0])
LABELS = np.repeat([1, 0], 12)


def sample(
    *,
    patients: np.ndarray | None = None,
    sites: np.ndarray | None = None,
    known: np.ndarray | None = None,
    auc_interval: tuple[float, float] | None = (0.7, 0.95),
) -> ClassSample:
    mask = np.ones(24, bool) if known is None else known
    return sample_of_scores(LOGITS, LABELS, mask, patients, sites, auc_interval)


def fitted(rules: DecisionRules, **samples: ClassSample) -> dict[str, Any]:
    calibration = fit_calibration(rules.calibration, samples)
    thresholds = fit_thresholds(rules, 0.5, samples, calibration)
    json.dumps([thresholds, calibration], allow_nan=False)  # can be stored
    return {name: (thresholds.get(name), calibration.get(name)) for name in samples}


def test_a_threshold_says_what_it_reached_and_on_what_it_rests():
    sites = np.array(["north", "south"] * 12)
    threshold, _ = fitted(DecisionRules(rule="youden"), a=sample(sites=sites))["a"]
    assert threshold == {
        "logit": 1.0,
        "probability": pytest.approx(0.7310586),
        "sensitivity": pytest.approx(11 / 12),
        "specificity": pytest.approx(11 / 12),
        "positives": 12,
        "negatives": 12,
        "sites": 2,
    }


def test_images_of_few_patients_are_few():
    patients = np.arange(24) // 4  # three patients with positives
    threshold, calibration = fitted(
        DecisionRules(rule="sensitivity>=0.9", calibration="platt"), a=sample(patients=patients)
    )["a"]
    why = "3 positive patients; at least 10 are needed"
    assert threshold["fallback"] == calibration["fallback"] == why
    assert (threshold["probability"], threshold["logit"], threshold["positives"]) == (0.5, 0, 12)
    assert "slope" not in calibration


def test_a_class_has_its_own_rule_or_a_threshold_given_by_hand():
    rules = DecisionRules(rule="youden", by_class={"b": 0.2, "c": "fixed", "d": "specificity>=1"})
    found = fitted(rules, a=sample(), b=sample(), c=sample(), d=sample())
    assert found["b"][0] == {
        "logit": pytest.approx(-1.3862944),
        "probability": 0.2,
        "given": True,
        "rule": "0.2",
    }
    assert found["c"][0] is None
    # A negative has the highest score, so only +inf reaches a specificity of 1.
    assert found["d"][0]["fallback"] == "with specificity>=1 nothing would be called present"
    assert found["d"][0]["rule"] == "specificity>=1"
    assert "rule" not in found["a"][0]
    assert given_thresholds(rules, ("a", "b", "c", "d")).keys() == {"b"}


def test_a_model_that_may_know_nothing_gets_no_youden_threshold():
    threshold, _ = fitted(DecisionRules(rule="youden"), a=sample(auc_interval=(0.4, 0.8)))["a"]
    assert "may be 0.5 or less" in threshold["fallback"]


def test_platt_and_costs_on_calibrated_probabilities():
    rules = DecisionRules(rule="cost 3:1 calibrated", calibration="platt")
    threshold, calibration = fitted(rules, a=sample())["a"]
    # Platt's targets 13/14 and 1/14: at logit 1, 11 positives and 1 negative average
    # (11 * 13/14 + 1/14) / 12 = 144/168; by symmetry the intercept is 0, the slope ln(144/24).
    assert calibration["slope"] == pytest.approx(np.log(6))
    assert calibration["intercept"] == pytest.approx(0, abs=1e-9)
    # A calibrated probability of 1/4 has the logit -ln 3.
    assert threshold["logit"] == pytest.approx(-np.log(3) / np.log(6))
    assert threshold["sensitivity"] == pytest.approx(11 / 12)
    without = fitted(DecisionRules(rule="cost 3:1 calibrated"), a=sample())["a"][0]
    assert without["fallback"] == "it is not calibrated by Platt or temperature"


def test_what_cannot_be_calibrated():
    upside_down = sample_of_scores(-LOGITS, LABELS, np.ones(24, bool), None, None, (0.1, 0.3))
    rules = DecisionRules(calibration="platt")
    assert fitted(rules, a=upside_down)["a"][1]["fallback"] == (
        "positives do not score higher than negatives"
    )
    equal = sample_of_scores(0 * LOGITS, LABELS, np.ones(24, bool), None, None, (0.3, 0.7))
    assert "all scores agree" in fitted(rules, a=equal)["a"][1]["fallback"]
    few = fitted(DecisionRules(calibration="isotonic"), a=sample())["a"][1]
    assert few["fallback"] == "24 annotated images; isotonic needs at least 1000"


def test_what_is_not_annotated_changes_nothing():
    rules = DecisionRules(rule="youden", calibration="platt")
    known = np.append(np.ones(24, bool), [False] * 3)
    garbage = sample_of_scores(
        np.append(LOGITS, [9e9, -7, 0]), np.append(LABELS, [1, 0, 5]), known, None, None, (0.7, 0.9)
    )
    assert fitted(rules, a=garbage) == fitted(rules, a=sample())


def test_a_recipe_without_rules_is_written_as_before():
    assert "decisions" not in plain(Evaluation(), {})
    settings = {"decisions": {"rule": "youden", "by_class": {"mel": 0.2, "nv": "f1"}}}
    evaluation = read(Evaluation, settings, "evaluation", {})
    assert evaluation.decisions.of_class("mel").target == 0.2
    assert evaluation.decisions.of_class("nv").kind == "f1"
    assert evaluation.decisions.of_class("bcc").kind == "youden"
    assert read(Evaluation, plain(evaluation, {}), "evaluation", {}) == evaluation


@pytest.mark.parametrize(
    ("decisions", "complaint"),
    [
        ({"rule": "yuoden"}, "evaluation.decisions.rule: 'yuoden' is no rule"),
        ({"by_class": {"mel": 2.0}}, "by_class.mel: a threshold must be between 0 and 1"),
        ({"calibration": "plat"}, "evaluation.decisions.calibration must be one of"),
    ],
)
def test_a_wrong_rule_is_refused(decisions: dict[str, Any], complaint: str):
    with pytest.raises(UserError, match=complaint):
        read(Evaluation, {"decisions": decisions}, "evaluation", {})


def test_a_rule_for_a_class_that_does_not_exist_is_refused():
    rules = DecisionRules(by_class={"mell": 0.2})
    with pytest.raises(UserError, match="no class 'mell'; did you mean 'mel'"):
        rules.check_classes(("mel", "nv"))
    assert DecisionRules().is_default
    assert not DecisionRules().needs_validation
    assert not rules.needs_validation
    assert DecisionRules(rule="youden").needs_validation


def test_thresholds_and_the_most_probable_class_exclude_each_other():
    with pytest.raises(UserError, match="exclusive predicts the most probable class"):
        Evaluation(exclusive=True, decisions=DecisionRules(rule="youden"))
    assert Evaluation(exclusive=True, decisions=DecisionRules(calibration="platt")).exclusive
