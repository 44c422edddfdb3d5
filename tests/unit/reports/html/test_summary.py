"""Sentences of the summary, worked out by hand from numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedquilt.reports.html.findings import Estimate, Finding
from fedquilt.reports.html.summary import (
    Setting,
    class_sentences,
    evaluation_sentence,
    limits,
    reliance_sentences,
    training_sentences,
)

SETTING = Setting(
    method="fedmlp",
    sites=3,
    classes=4,
    annotated_by_site=(1, 3, 2),
    train_images=1200,
    train_patients=800,
    test_images=300,
    test_patients=200,
    patients_in_both=0,
    served_round=7,
    rounds=10,
)


def finding(name: str, auc: float | None, low: float | None = None, **counts: int) -> Finding:
    high = None if low is None else min(1.0, 2 * (auc or 0) - low)
    return Finding(
        place=counts.pop("place", 0),
        name=name,
        positives=counts.pop("positives", 50),
        negatives=counts.pop("negatives", 250),
        auc=Estimate(auc, low, high),
        **counts,
    )


EDEMA = finding("edema", 0.9, 0.85)
MASS = finding("mass", 0.7, 0.6, place=1)
NODULE = finding("nodule", 0.55, 0.48, place=2)
HERNIA = finding("hernia", 0.99, 0.8, positives=9, place=3)
UNSEEN = finding("fibrosis", None, positives=0, place=4)


def test_who_trained_what():
    assert training_sentences(SETTING) == [
        "One model was trained with fedmlp at 3 sites on 1,200 images of 800 patients, to say of "
        "an image which of 4 findings it shows.",
        "Every site annotated between 1 and 3 of the 4 findings; no site annotated all of them. "
        "What was not annotated is not taken for absent.",
    ]


def test_sites_that_annotated_everything_and_models_of_their_own():
    same = replace(SETTING, annotated_by_site=(4, 4, 4), model_count=3, train_images=None)
    assert training_sentences(same) == [
        "One model per site was trained with fedmlp at 3 sites, to say of an image which of 4 "
        "findings it shows.",
        "Every site annotated all findings.",
    ]
    some = replace(SETTING, annotated_by_site=(4, 2, 4))
    assert training_sentences(some)[1].startswith("Every site annotated between 2 and 4 of the 4 ")
    assert "no site annotated all" not in training_sentences(some)[1]


@pytest.mark.parametrize(
    ("shared", "words"),
    [
        (0, "300 images of 200 patients, none of whom are in the training images."),
        (1, "but 1 patient of these is also in the training images: too good."),
        (7, "but 7 patients of these are also in the training images: too good."),
        (None, "The data do not name patients, so images of one patient may be on both sides."),
    ],
)
def test_whether_patients_are_on_both_sides(shared: int | None, words: str):
    assert evaluation_sentence(replace(SETTING, patients_in_both=shared)).endswith(words)


def test_best_and_worst_class_with_interval_and_positives():
    assert class_sentences([MASS, EDEMA, NODULE, HERNIA, UNSEEN]) == [
        "It sees edema (AUC 90.0 %, 95 % interval 85.0 to 95.0; 50 test images with it) best.",
        "It sees nodule (AUC 55.0 %, 95 % interval 48.0 to 62.0; 50 test images with it) least "
        "well.",
    ]
    with_patients = replace(EDEMA, positive_patients=41, negative_patients=60)
    assert class_sentences([with_patients]) == [
        "It sees edema (AUC 90.0 %, 95 % interval 85.0 to 95.0; 41 patients with it) best."
    ]


def test_classes_that_nothing_can_be_said_of():
    assert class_sentences([]) == ["No model was tested, so nothing is known of what it sees."]
    assert class_sentences([HERNIA, UNSEEN]) == [
        "No finding has enough test images to say how well the model sees it."
    ]


def test_what_not_to_rely_on():
    assert reliance_sentences([EDEMA, NODULE, HERNIA, UNSEEN]) == [
        "For 1 of 4 findings fewer than 10 images with it, or fewer than 10 without it, were "
        "tested (hernia): do not rely on it.",
        "For 1 of 4 findings the interval reaches 50 % or less (nodule): the model may be "
        "guessing.",
        "1 of 4 findings could not be tested at all (fibrosis): the test images lack positives or "
        "negatives.",
    ]
    assert reliance_sentences([EDEMA, MASS]) == []


def test_patients_count_where_they_are_named():
    many_images = finding("mass", 0.8, 0.7, positive_patients=9, negative_patients=100)
    two = [many_images, replace(many_images, name="edema")]
    assert reliance_sentences(two) == [
        "For 2 of 2 findings fewer than 10 patients with it, or fewer than 10 without it, were "
        "tested (mass and edema): do not rely on them."
    ]


def test_missing_intervals_are_said():
    assert reliance_sentences([finding("edema", 0.9)]) == [
        "No intervals were computed, so differences of a few points may be chance."
    ]


def test_three_limits_the_worst_first():
    plain = limits(SETTING)
    assert len(plain) == 3
    assert plain[0].startswith("It is a research model, not a medical device")
    assert plain[1].startswith("Its scores are not calibrated")
    leaky = limits(replace(SETTING, patients_in_both=2, chosen_on="test"))
    assert [each.split(",")[0] for each in leaky[1:]] == [
        "Patients are in both training and test images",
        "The round was chosen on the test images",
    ]
    part = limits(replace(SETTING, missing_images=1, patients_in_both=2))
    assert part[1].startswith("Only a part of the published data set was there; 1 image of it")
    fitted = limits(replace(SETTING, calibrated=True))
    assert fitted[2].startswith("No threshold was fitted")
