from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedquilt.core.errors import UserError
from fedquilt.metrics.decision_rules import DecisionRules
from fedquilt.metrics.evaluation import Evaluation
from fedquilt.runs.fitted_decisions import (
    NO_VALIDATION,
    class_samples,
    fit_decisions,
    store_decisions,
    stored_decisions,
)
from fedquilt.runs.run_folder import RunFolder
from fedquilt.runs.scores import Scores

CLASSES = ("easy", "rare", "blank")


def make_scores(models: tuple[str, ...] = ("global",)) -> Scores:
    """60 images of 60 patients: "easy" is ranked well, "rare" has 3 positives, "blank" no label."""
    number = np.arange(60)
    labels = np.stack([number % 2, number < 3, 0 * number], axis=1).astype(np.uint8)
    known = np.ones((60, 3), dtype=bool)
    known[:, 2] = False
    logits = np.stack([2.0 * (number % 2) - 1 + 0.05 * (number % 7), number, number], axis=1)
    logits[:4, 0] *= -1  # two mistakes of either kind, so that the labels are not separated
    return Scores(
        part="validation",
        round=7,
        classes=CLASSES,
        ids=tuple(map(str, number)),
        labels=labels,
        known=known,
        logits={name: logits.astype(np.float32) for name in models},
        patients=number.astype(np.int64),
        sites=tuple("north" if each < 40 else "south" for each in number),
    )


def settings(**rules: object) -> Evaluation:
    return Evaluation(decisions=DecisionRules(**rules))  # type: ignore[arg-type]


def test_each_class_says_what_was_fitted_or_why_not():
    found = fit_decisions(
        settings(rule="youden", calibration="platt"), CLASSES, ["global"], make_scores()
    )["global"]
    thresholds, calibration = found["thresholds"], found["calibration"]
    assert (thresholds["rule"], thresholds["fitted_on"], thresholds["round"]) == (
        *("youden", "validation", 7),
    )
    assert (calibration["method"], calibration["round"]) == ("platt", 7)
    easy = thresholds["classes"]["easy"]
    assert easy["logit"] == pytest.approx(1.0)  # the least score of the 28 positives ranked right
    assert easy["sensitivity"] == pytest.approx(28 / 30)
    assert (easy["positives"], easy["negatives"], easy["sites"]) == (30, 30, 2)
    assert calibration["classes"]["easy"]["slope"] > 0
    assert (
        thresholds["classes"]["rare"]["fallback"] == "3 positive patients; at least 10 are needed"
    )
    assert thresholds["classes"]["rare"]["probability"] == 0.5
    assert thresholds["classes"]["blank"]["fallback"].startswith("0 positive patients")
    assert calibration["classes"]["blank"]["fallback"].startswith("0 positive patients")


def test_a_clients_own_model_is_fitted_on_its_own_images():
    scores = make_scores(("north", "south"))
    assert class_samples(scores, "south")["easy"].basis.positives == 10
    found = fit_decisions(settings(rule="youden"), CLASSES, ["north", "south"], scores)
    assert found["north"]["thresholds"]["classes"]["easy"]["positives"] == 20
    assert found["south"]["thresholds"]["classes"]["easy"]["positives"] == 10


def test_without_a_validation_part_nothing_is_fitted_and_it_says_so():
    rules = settings(rule="youden", calibration="platt", by_class={"rare": 0.2, "blank": "fixed"})
    found = fit_decisions(rules, CLASSES, ["global"], None)["global"]
    thresholds = found["thresholds"]["classes"]
    assert thresholds["easy"] == {"logit": 0.0, "probability": 0.5, "fallback": NO_VALIDATION}
    assert thresholds["rare"]["probability"] == 0.2  # given by hand: needs no validation
    assert "blank" not in thresholds
    assert found["calibration"]["classes"]["easy"] == {"fallback": NO_VALIDATION}
    assert found["thresholds"]["fitted_on"] is None


def test_a_recipe_that_asks_for_nothing_stores_nothing():
    assert fit_decisions(Evaluation(), CLASSES, ["global"], make_scores()) == {}
    with pytest.raises(UserError, match="no class 'eazy'"):
        fit_decisions(settings(by_class={"eazy": 0.2}), CLASSES, ["global"], None)


def test_entries_are_added_to_the_model_card_and_read_again(tmp_path: Path):
    folder = RunFolder(tmp_path)
    folder.model.write_text('{"threshold": 0.5, "files": {}}')
    rules = settings(rule="sensitivity>=0.9", calibration="platt")
    found = fit_decisions(rules, CLASSES, ["global"], make_scores())
    store_decisions(folder, found)
    card = json.loads(folder.model.read_text())
    assert card["threshold"] == 0.5
    assert stored_decisions(card, "global") == found["global"]
    assert stored_decisions(card, "north") == {}
    own = fit_decisions(rules, CLASSES, ["north"], make_scores(("north",)))
    store_decisions(folder, own)
    assert stored_decisions(json.loads(folder.model.read_text()), "north") == own["north"]


def test_labels_under_the_mask_and_the_order_of_images_change_nothing():
    rules, scores = settings(rule="youden", calibration="platt"), make_scores()
    before = fit_decisions(rules, CLASSES, ["global"], scores)
    order = np.random.default_rng(0).permutation(60)
    garbage = np.where(scores.known, scores.labels, 1)[order]
    shuffled = replace(
        scores,
        ids=tuple(scores.ids[each] for each in order),
        labels=garbage,
        known=scores.known[order],
        logits={"global": scores.logits["global"][order]},
        patients=None if scores.patients is None else scores.patients[order],
        sites=tuple((scores.sites or ())[each] for each in order),
    )
    assert fit_decisions(rules, CLASSES, ["global"], shuffled) == before


def test_with_a_disclosure_floor_the_global_model_is_fitted_on_histograms():
    random = np.random.default_rng(0)
    labels = np.repeat([[1], [0]], [400, 1200], axis=0).astype(np.uint8)
    logits = np.where(labels == 1, random.normal(1, 1, (1600, 1)), random.normal(-2, 1, (1600, 1)))
    scores = Scores(
        part="validation",
        round=3,
        classes=("a",),
        ids=tuple(map(str, range(1600))),
        labels=labels,
        known=np.ones((1600, 1), dtype=bool),
        logits={"global": logits.astype(np.float32)},
        sites=tuple("north" if each % 2 else "south" for each in range(1600)),
    )
    rules = settings(rule="specificity>=0.9", calibration="platt")
    pooled = fit_decisions(rules, ("a",), ["global"], scores)["global"]
    sent = fit_decisions(rules, ("a",), ["global"], scores, min_cell=10)["global"]
    assert "from" not in pooled["thresholds"]
    assert (sent["thresholds"]["from"], sent["thresholds"]["min_cell"]) == ("histograms", 10)
    exact, near = (each["thresholds"]["classes"]["a"] for each in (pooled, sent))
    assert near["logit"] * 8 == round(near["logit"] * 8)  # the edge of a bin
    assert near["logit"] >= exact["logit"]  # merged cells allow only a safer threshold
    reached = (logits[labels == 0] < near["logit"]).mean()
    assert reached >= near["specificity"] >= 0.9
    assert (near["positives"], near["sites"]) == (400, 2)
    assert near["auc_bounds"][0] < near["auc_bounds"][1]
    fits = [each["calibration"]["classes"]["a"]["slope"] for each in (pooled, sent)]
    assert fits[1] == pytest.approx(fits[0], rel=0.2)  # cells of 200 positives are wide
