from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from fedquilt.metrics.calibration import Outcomes, fit_platt
from fedquilt.metrics.decision_rules import DecisionRules
from fedquilt.metrics.fitting_from_histograms import TOO_FEW, fit_from_histograms
from fedquilt.metrics.histograms import Cells
from fedquilt.metrics.threshold_rules import read_rule
from fedquilt.metrics.thresholds import choose, cutoffs_of_scores
from fedquilt.privacy.score_histograms import (
    cells_by_class,
    expected_histograms,
    score_histograms,
)

CLASSES = ("a", "b")


def drawn(seed: int, positives: int, negatives: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    logits = np.concatenate([random.normal(1, 1.2, positives), random.normal(-2, 1, negatives)])
    return logits, np.repeat([1, 0], [positives, negatives])


def sent(logits: np.ndarray, labels: np.ndarray, min_cell: int) -> dict[str, Cells]:
    """What a site sends of class a, of which it annotates all images, and of b, of which none."""
    both = np.stack([logits, logits], axis=1)
    known = np.stack([labels >= 0, labels < 0], axis=1)
    part = score_histograms(both, np.stack([labels, labels], 1).astype(np.uint8), known, None,
                            min_cell)  # fmt: skip
    assert {k: v.shape for k, v in part.value.items()} == {  # type: ignore[union-attr]
        k: v.shape
        for k, v in expected_histograms(2).value.items()  # type: ignore[union-attr]
    }
    return cells_by_class(part.value, CLASSES)  # type: ignore[arg-type]


@pytest.mark.parametrize("min_cell", [0, 10])
def test_many_sites_are_near_the_pooled_fit(min_cell: int):
    draws = [drawn(seed, 300, 2000) for seed in range(3)]
    sites = {f"site-{k}": sent(*draw, min_cell) for k, draw in enumerate(draws)}
    rules = DecisionRules(rule="sensitivity>=0.9", calibration="platt")
    fitted = fit_from_histograms(rules, 0.5, CLASSES, sites)
    logits = np.concatenate([draw[0] for draw in draws])
    labels = np.concatenate([draw[1] for draw in draws])
    pooled = cutoffs_of_scores(logits, labels, labels >= 0)
    exact = pooled.logits[choose(read_rule("sensitivity>=0.9"), pooled)]
    entry = fitted.thresholds["a"]
    assert entry["logit"] == pytest.approx(exact, abs=0.125 if min_cell == 0 else 0.6)
    reached = (logits[labels == 1] >= entry["logit"]).mean()
    if min_cell == 0:
        assert reached == pytest.approx(entry["sensitivity"])
    assert reached >= entry["sensitivity"] >= 0.9  # what is promised is certain
    assert (entry["positives"], entry["negatives"], entry["sites"]) == (900, 6000, 3)
    line = fit_platt(Outcomes(logits, 1.0 * (labels == 1), 1.0 * (labels == 0)))
    assert line is not None
    found = fitted.calibration["a"]
    allowed = 0.01 if min_cell == 0 else 0.1
    assert found["slope"] == pytest.approx(line.slope, rel=allowed)
    assert found["intercept"] == pytest.approx(line.intercept, abs=allowed)
    low, high = entry["auc_bounds"]
    assert low <= roc_auc_score(labels, logits) <= high
    assert fitted.thresholds["b"] == {**fitted.thresholds["b"], "fallback": TOO_FEW}
    assert fitted.calibration["b"] == {"fallback": TOO_FEW}
    json.dumps([fitted.thresholds, fitted.calibration], allow_nan=False)


def test_one_site_is_pooled_and_the_order_of_sites_changes_no_bit():
    logits, labels = drawn(0, 300, 2000)
    half = np.arange(len(logits)) % 2 == 0
    rules = DecisionRules(rule="youden", calibration="platt")
    whole = fit_from_histograms(rules, 0.5, CLASSES, {"one": sent(logits, labels, 0)})
    parts = {
        "x": sent(logits[half], labels[half], 0),
        "y": sent(logits[~half], labels[~half], 0),
    }
    split = fit_from_histograms(rules, 0.5, CLASSES, parts)
    turned = fit_from_histograms(rules, 0.5, CLASSES, dict(reversed(parts.items())))
    assert split == turned
    assert split.thresholds["a"] == {**whole.thresholds["a"], "sites": 2}
    close = {key: pytest.approx(value, rel=1e-3) for key, value in whole.calibration["a"].items()}
    assert split.calibration["a"] == {**close, "sites": 2}


def test_sites_with_few_positives_are_not_used():
    sites = {"large": sent(*drawn(0, 150, 900), 10), "small": sent(*drawn(1, 99, 900), 10)}
    fitted = fit_from_histograms(DecisionRules(rule="youden"), 0.5, CLASSES, sites)
    assert (fitted.thresholds["a"]["positives"], fitted.thresholds["a"]["sites"]) == (150, 1)
    only_small = fit_from_histograms(
        DecisionRules(rule="youden", by_class={"b": 0.3}), 0.5, CLASSES, {"s": sites["small"]}
    )
    assert only_small.thresholds["a"]["fallback"] == TOO_FEW
    assert only_small.thresholds["b"]["given"] is True


def test_a_threshold_in_the_open_lowest_bin_is_not_one():
    logits, labels = drawn(0, 200, 200)
    sites = {"one": sent(logits * 0 - 20, labels, 0)}
    fitted = fit_from_histograms(DecisionRules(rule="sensitivity>=0.9"), 0.5, CLASSES, sites)
    assert fitted.thresholds["a"]["fallback"] == (
        "with sensitivity>=0.9 everything would be called present"
    )


def test_isotonic_needs_single_scores():
    rules = DecisionRules(calibration="isotonic")
    fitted = fit_from_histograms(rules, 0.5, CLASSES, {"one": sent(*drawn(0, 300, 900), 10)})
    assert "do not leave the sites" in fitted.calibration["a"]["fallback"]


def test_a_class_below_the_floor_is_not_sent_and_looks_like_none():
    few, none = drawn(0, 9, 500), drawn(0, 0, 500)
    assert sent(*few, 10) == sent(*none, 10) == {}


def test_counts_outside_of_cells_are_refused():
    part = score_histograms(
        np.zeros((4, 1)), np.array([[1], [1], [0], [0]], np.uint8), np.ones((4, 1), bool), None, 0
    )
    value = dict(part.value)  # type: ignore[arg-type]
    wrong = {**value, "positives": -value["positives"]}
    with pytest.raises(ValueError, match="outside of its cells"):
        cells_by_class(wrong, ("a",))
    starts = value["starts"].clone()
    starts[0, 0] = 0
    with pytest.raises(ValueError, match="does not start at its first bin"):
        cells_by_class({**value, "starts": starts}, ("a",))
