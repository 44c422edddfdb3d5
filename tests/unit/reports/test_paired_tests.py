"""Which rows of a comparison are tested, what is found, and who gets a star."""

from __future__ import annotations

from dataclasses import replace
from math import isnan

import numpy as np
import pytest

from fedquilt.core.errors import UserError
from fedquilt.metrics.across_seeds import variance_with_seeds
from fedquilt.metrics.paired import auc_difference
from fedquilt.metrics.placements import influence
from fedquilt.reports.paired_tests import Contender, ahead_of_all, paired_tests, sentence
from fedquilt.runs.scores import Scores

COUNT = 120  # images of 60 patients
CLASSES = ("mass", "cyst", "rare")


def labels() -> np.ndarray:
    generator = np.random.default_rng(0)
    found = (generator.random((COUNT, 3)) < (0.5, 0.4, 0.0)).astype(np.uint8)
    found[:4, 2] = 1  # of two patients
    return found


def scores(quality: float, seed: int, *, patients: int = 60, **changes) -> Scores:
    """Logits that separate the classes better the higher their quality."""
    generator = np.random.default_rng([seed, int(100 * quality)])
    truth = labels()
    logits = (quality * truth + generator.normal(size=truth.shape)).astype(np.float32)
    content = {
        "part": "test",
        "round": 3,
        "classes": CLASSES,
        "ids": tuple(map(str, range(COUNT))),
        "labels": truth,
        "known": np.ones(truth.shape, dtype=bool),
        "logits": {"global": logits},
        "patients": np.arange(COUNT) * patients // COUNT,
    }
    return Scores(**(content | changes))


def row(label: str, quality: float, seeds: int = 1, **options) -> Contender:
    found = {str(seed): scores(quality, seed, **options) for seed in range(seeds)}
    return Contender(label, found, dict.fromkeys(found), {"rounds": "3"})


def test_a_clear_difference_is_significant():
    (test,) = paired_tests([row("good", 3.0), row("poor", 0.2)])
    assert (test.patients, test.unit, test.seeds, test.macro_classes) == (60, "patient", 1, 2)
    assert test.macro.value > 0.2
    assert test.macro.low > 0
    assert test.macro_holm == test.macro.p < 0.001  # one pair
    assert test.leader() == test.leader("mass") == "good"
    assert ahead_of_all([test], ["good", "poor"]) == "good"
    assert sentence(test).startswith("good is significantly ahead of poor: +")


def test_equal_models_do_not_differ():
    (test,) = paired_tests([row("one", 1.0), row("two", 1.0)])
    assert test.macro.value == 0
    assert test.leader() is None
    assert ahead_of_all([test], ["one", "two"]) is None
    assert sentence(test).startswith("no significant difference between one and two")


def test_the_numbers_of_a_class_are_the_paired_test():
    (test,) = paired_tests([row("a", 1.0), row("b", 0.8)])
    first, second = scores(1.0, 0), scores(0.8, 0)
    positive, patients = first.labels[:, 0] == 1, first.patients
    sides = [influence(s.logits["global"][:, 0], positive, patients, 60) for s in (first, second)]
    assert test.classes["mass"] == auc_difference(*sides)
    adjusted = sorted(test.holm[name] for name in CLASSES)
    raw = sorted(test.classes[name].p for name in CLASSES)
    assert adjusted[0] == pytest.approx(min(1, 3 * raw[0]))


def test_seeds_add_their_variance():
    (test,) = paired_tests([row("a", 1.2, seeds=3), row("b", 0.8, seeds=3)])
    values, gaps = [], []
    for seed in range(3):
        sides = []
        for found in (scores(1.2, seed), scores(0.8, seed)):
            positive = found.labels[:, 1] == 1
            sides.append(influence(found.logits["global"][:, 1], positive, found.patients, 60))
        values.append(sides[0].auc - sides[1].auc)
        gaps.append(sides[0].of_patients - sides[1].of_patients)
    of_patients = float((np.mean(gaps, axis=0) ** 2).sum())
    found = test.classes["cyst"]
    assert found.value == pytest.approx(np.mean(values))
    assert found.error**2 == pytest.approx(variance_with_seeds(values, of_patients))
    assert found.error**2 > of_patients


def test_only_common_seeds_are_compared():
    three, one = row("a", 1.2, seeds=3), row("b", 0.8)
    (test,) = paired_tests([three, one])
    assert test.seeds == 1
    shifted = replace(one, scores={"9": one.scores["0"]}, counts={"9": None})
    (test,) = paired_tests([three, shifted])
    assert test.why_not == "they have no random seed in common"
    assert test.leader() is None


def test_a_class_of_few_patients_is_tested_by_permutation_and_gets_no_star():
    (test,) = paired_tests([row("good", 4.0), row("poor", 0.0)])
    assert test.classes["rare"].test == "permutation"
    assert 0 < test.classes["rare"].p <= 1
    assert test.leader("rare") is None
    assert "rare" not in test.judged


def test_fewer_than_six_patients_get_no_star():
    (test,) = paired_tests([row("good", 4.0, patients=5), row("poor", 0.0, patients=5)])
    assert test.leader() is None
    assert sentence(test).startswith("too few to tell good and poor apart")


def test_three_rows_are_corrected_for_three_tests():
    tests = paired_tests([row("a", 3.0), row("b", 1.0), row("c", 0.9)])
    assert [(test.one, test.other) for test in tests] == [("a", "b"), ("a", "c"), ("b", "c")]
    smallest = min(tests, key=lambda test: test.macro.p)
    assert smallest.macro_holm == pytest.approx(3 * smallest.macro.p)
    assert ahead_of_all(tests, ["a", "b", "c"]) == "a"
    assert ahead_of_all(tests[2:], ["b", "c"]) is None


def test_a_bound_is_not_tested():
    bound = replace(row("full-labels", 3.0), is_bound=True)
    assert paired_tests([bound, row("a", 1.0)]) == []


def test_rows_that_differ_in_more_than_the_method_are_not_tested():
    other = replace(row("b", 0.8), settings={"rounds": "9"})
    (test,) = paired_tests([row("a", 1.0), other])
    assert test.why_not == "they differ in more than the method: rounds"
    assert isnan(test.macro.p)
    assert "not tested" in sentence(test)
    assert test.to_dict()["macro_auc"]["value"] is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": 1 - labels()}, "the same images with other labels or another mask"),
        ({"ids": tuple(f"x{n}" for n in range(COUNT))}, "120 and 120 images, or other ones"),
        ({"classes": ("mass", "cyst", "other")}, "3 and 3 classes, or other names"),
    ],
)
def test_different_test_data_are_refused(changes, message):
    other = row("b", 0.8)
    changed = {"0": replace(other.scores["0"], **changes)}
    with pytest.raises(UserError, match=f"tested on different data .{message}"):
        paired_tests([row("a", 1.0), replace(other, scores=changed)])


def test_seeds_with_their_own_test_images_are_the_units():
    rows = []
    for label, quality in (("good", 3.0), ("poor", 0.2)):
        own = row(label, quality, seeds=3)
        ids = {s: tuple(f"{s}-{n}" for n in range(COUNT)) for s in own.scores}
        moved = {s: replace(each, ids=ids[s]) for s, each in own.scores.items()}
        rows.append(replace(own, scores=moved))
    (test,) = paired_tests(rows)
    assert (test.unit, test.seeds) == ("seed", 3)
    assert test.macro.value > 0.2
    assert test.leader() is None
    assert "3 seeds, at least 6 are needed" in sentence(test)


def test_own_models_of_clients_are_compared_by_their_mean():
    one = row("own", 1.5)
    both = {"a": scores(1.5, 0).logits["global"], "b": scores(1.5, 1).logits["global"]}
    (test,) = paired_tests(
        [replace(one, scores={"0": replace(one.scores["0"], logits=both)}), row("poor", 0.1)]
    )
    assert test.leader() == "own"
    assert test.classes["rare"].test == "paired z"
