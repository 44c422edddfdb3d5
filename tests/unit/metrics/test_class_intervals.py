"""Intervals per class: what must not change a bit, and what is undefined."""

from __future__ import annotations

from math import isnan, nan

import numpy as np
import pytest
from support.t16 import PATIENTS, POSITIVE, S, T, both_classes, of

from fedquilt.metrics.class_intervals import (
    class_interval,
    macro_auc,
    mean_intervals,
    model_intervals,
)
from fedquilt.metrics.intervals import auc_interval, newcombe
from fedquilt.metrics.labelled_images import LabelledImages
from fedquilt.metrics.paired import auc_difference, permutation_p_values, swaps
from fedquilt.metrics.placements import influence

NAMES = ("mass", "cyst")


def intervals(images: LabelledImages, scores: np.ndarray):
    return model_intervals(images, scores, scores >= 0.5, NAMES)


def reordered(images: LabelledImages, order: np.ndarray) -> LabelledImages:
    return LabelledImages.of(images.labels[order], images.known[order], images.patients[order])


def same(one, other) -> bool:
    """Equal to the bit; NaN equals NaN."""
    return repr(one) == repr(other)


def test_garbage_under_the_mask_changes_no_bit():
    clean, dirty = ((images, one) for images, one, _ in map(both_classes, (0.0, 9.75)))
    assert not np.array_equal(clean[1], dirty[1])
    assert same(intervals(*clean), intervals(*dirty))


def test_the_order_of_rows_changes_no_bit():
    images, one, other = both_classes()
    order = np.random.default_rng(0).permutation(16)
    shuffled = reordered(images, order)
    found, expected = intervals(shuffled, one[order]), intervals(images, one)
    # The draws of the bootstrap are of numbered patients, and depend on their numbers.
    del found["per_class"]["f1"], expected["per_class"]["f1"]
    assert same(found, expected)
    for column in range(2):
        tests = []
        for data, a, b in ((images, one, other), (shuffled, one[order], other[order])):
            (left, right) = (list(data.influences([scores]))[column] for scores in (a, b))
            tests.append(auc_difference(left, right))
        assert same(*tests)


def test_the_order_of_rows_changes_no_permutation_test():
    generator = np.random.default_rng(1)
    positive, patients = generator.random(90) < 0.2, np.arange(90) // 3
    one, other = generator.normal(size=(2, 90)) + positive
    order = generator.permutation(90)
    kept = permutation_p_values([swaps(one, other, positive, patients)])
    moved = [each[order] for each in (one, other, positive, patients)]
    assert permutation_p_values([swaps(*moved)]) == kept
    assert 1 / 10_001 <= kept[0] <= 1


def test_one_image_per_patient_is_delong():
    assert of(S).variance == of(S).variance_of_images
    assert of(S, PATIENTS).variance_of_images == pytest.approx(of(S).variance, rel=1e-14)


def test_twice_the_images_of_every_patient_leave_the_clustered_variance():
    twice = np.repeat(np.arange(16), 2)
    doubled = influence(S[twice], POSITIVE[twice], PATIENTS[twice], 10)
    assert doubled.auc == of(S).auc
    assert doubled.variance == pytest.approx(0.0202266785, abs=5e-11)
    assert doubled.variance_of_images == pytest.approx(0.0052140, abs=5e-8)
    images = LabelledImages.of(POSITIVE[:, None].astype(np.uint8), np.ones((16, 1), bool), PATIENTS)
    table = intervals_of(images, S)
    again = intervals_of(reordered(images, twice), S[twice])
    for rate in ("sensitivity", "specificity", "ppv", "npv", "ap"):
        found, expected = (class_interval(each, rate, 0) for each in (again, table))
        assert found[:3] == pytest.approx(expected[:3])


def intervals_of(images: LabelledImages, scores: np.ndarray):
    return model_intervals(images, scores[:, None], scores[:, None] >= 0.5, ("mass",))


def test_scaling_and_shifting_scores_changes_nothing():
    images, one, _ = both_classes()
    moved = 4 * one - 1  # exact enough to keep ties
    expected = model_intervals(images, one, one >= 0.5, NAMES)
    assert same(model_intervals(images, moved, one >= 0.5, NAMES), expected)


def test_decisions_are_counted_per_class():
    # Class 1 at 0.5: TP 4, FP 3, FN 2, TN 7, each image a patient: Wilson's intervals.
    labels, known = POSITIVE[:, None].astype(np.uint8), np.ones((16, 1), dtype=bool)
    found = intervals_of(LabelledImages.of(labels, known), S)
    assert found["unit"] == "image"
    expected = {
        "sensitivity": (4 / 6, 0.299993315, 0.903228589),
        "specificity": (7 / 10, 0.396778147, 0.892208733),
        "ppv": (4 / 7, 0.250458365, 0.841780145),
        "npv": (7 / 9, 0.452588969, 0.936774893),
    }
    for name, numbers in expected.items():
        assert class_interval(found, name, 0)[:3] == pytest.approx(numbers, abs=5e-10)
    f1 = class_interval(found, "f1", 0)
    assert f1.value == 8 / 13
    assert f1.low < f1.value < f1.high
    assert f1.rule == "bootstrap"


def test_a_class_without_positives_is_undefined_everywhere():
    labels, known = np.zeros((16, 1), dtype=np.uint8), np.ones((16, 1), dtype=bool)
    found = intervals_of(LabelledImages.of(labels, known, PATIENTS), S)
    assert found["positives"] == [0]
    for name in ("auc", "ap", "sensitivity"):
        assert np.isnan(class_interval(found, name, 0)[:3]).all(), name
    assert class_interval(found, "specificity", 0).value == 9 / 16
    assert found["averages"]["macro_auc"]["classes"] == 0
    assert isnan(found["averages"]["macro_auc"]["value"])


def test_one_positive_gets_newcombes_interval():
    positive = np.array([True, False, False, False, False])
    found = influence(np.array([4.0, 5, 3, 2, 1]), positive, np.arange(5), 5)
    assert isnan(found.variance)
    assert auc_interval(found) == (0.75, *newcombe(0.75, 1, 4), "newcombe")


@pytest.mark.parametrize(("scores", "auc"), [(POSITIVE * 1.0, 1.0), (np.zeros(16), 0.5)])
def test_separated_or_tied_scores_get_newcombes_interval(scores: np.ndarray, auc: float):
    found = auc_interval(of(scores))
    assert found == (auc, *newcombe(auc, 6, 10), "newcombe")
    assert found.high - found.low > 0.2
    clustered = auc_interval(of(scores, PATIENTS))  # 5 and 6 patients
    assert clustered == (auc, *newcombe(auc, 5, 6), "newcombe")


def test_many_positives_of_one_patient_count_as_one():
    patients = np.where(POSITIVE, 0, PATIENTS + 1)
    found = auc_interval(influence(S, POSITIVE, patients, 11))
    assert found == (of(S).auc, *newcombe(of(S).auc, 1, 6), "newcombe")


def test_clustered_images_count_for_less():
    clustered, single = auc_interval(of(S, PATIENTS)), auc_interval(of(S))
    design = 0.0202266785360 / 0.0113148148148
    expected = newcombe(5 / 6, 6 / design, 10 / design)
    assert (clustered.low, clustered.high) == pytest.approx(expected, abs=1e-9)
    assert clustered.low < single.low < single.high < clustered.high


def test_from_20_patients_on_the_logit_interval():
    repeated = np.tile(S, 4)
    positive, patients = np.tile(POSITIVE, 4), np.arange(64)
    assert auc_interval(influence(repeated, positive, patients, 64)).rule == "logit"
    assert auc_interval(influence(repeated, positive, patients // 2, 32)).rule == "newcombe"


def test_a_class_of_one_patient_widens_the_macro_interval():
    images, one, _ = both_classes()
    known = images.known.copy()
    known[[4, 6, 8], 1] = False  # one positive of class 2 is left
    few = LabelledImages.of(images.labels, known, PATIENTS)
    found, full = (macro_auc(each.influences([one])) for each in (few, images))
    assert found["classes"] == 2
    assert found["low"] < full["low"]
    assert found["high"] - found["low"] > full["high"] - full["low"]


def test_a_macro_average_of_perfect_classes_has_an_interval():
    found = macro_auc([of(POSITIVE * 1.0)] * 2)
    low, _ = newcombe(1, 6, 10)
    assert (found["value"], found["low"], found["high"]) == (1, pytest.approx(low), 1)


def test_the_mean_over_models():
    images, one, other = both_classes()
    found = mean_intervals(images, [one, other], NAMES)
    assert found["models"] == 2
    assert found["per_class"]["auc"]["value"][0] == pytest.approx((5 / 6 + 0.8) / 2)
    alone = mean_intervals(images, [one], NAMES)["per_class"]["auc"]
    assert same(alone, intervals(images, one)["per_class"]["auc"])
    assert same(mean_intervals(images, [one, one], NAMES)["per_class"]["auc"], alone)


def test_the_same_model_does_not_differ_from_itself():
    found = auc_difference(of(S, PATIENTS), of(S, PATIENTS))
    assert (found.value, found.error, found.p) == (0, 0, 1)
    assert permutation_p_values([swaps(S, S, POSITIVE, PATIENTS)]) == [1.0]


def test_f1_has_no_interval_below_five_patients():
    positive = POSITIVE & (np.arange(16) < 4)  # patients 0, 1 and 2
    images = LabelledImages.of(
        positive[:, None].astype(np.uint8), np.ones((16, 1), dtype=bool), PATIENTS
    )
    found = class_interval(intervals_of(images, T), "f1", 0)
    assert found.value == pytest.approx(2 * 4 / (4 + 7))
    assert same(found[1:], (nan, nan, None))
