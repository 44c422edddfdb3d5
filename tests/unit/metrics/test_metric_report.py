from __future__ import annotations

import json
from dataclasses import FrozenInstanceError
from math import isnan

import pytest
import torch

from fedquilt.core.errors import UserError
from fedquilt.metrics import Report, score

CLASSES = ("seen", "unpredicted", "unlabelled", "empty")
# seen: TP 1, TN 1. unpredicted: FN 1, TN 1. unlabelled: FP 1, TN 1. empty: nothing known.
PROBABILITIES = torch.tensor([[0.9, 0.1, 0.8, 0.9], [0.2, 0.2, 0.3, 0.1]])
LABELS = torch.tensor([[1, 1, 0, 1], [0, 0, 0, 0]])
KNOWN = torch.tensor([[True, True, True, False], [True, True, True, False]])


def small_report(**options: object) -> Report:
    return score(PROBABILITIES, LABELS, KNOWN, CLASSES, **options)


def test_names_of_the_metrics():
    report = small_report()
    assert report.classes == CLASSES
    assert set(report.per_class) == {
        *("auc", "ap", "bacc", "precision", "recall", "specificity", "f1"),
        *("positives", "negatives"),
    }
    assert set(report.averages) == {
        *("bacc", "macro_auc", "micro_auc", "map", "overall_ap", "hamming", "subset_accuracy"),
        *("class_precision", "class_recall", "class_f1", "macro_f1"),
        *("overall_precision", "overall_recall", "overall_f1"),
    }
    assert all(len(values) == 4 for values in report.per_class.values())


@pytest.mark.parametrize("zero_division", [0, 1.0, "nan", "skip"])
@pytest.mark.parametrize("undefined", ["skip", "zero"])
def test_undefined_stays_nan_per_class_under_every_policy(zero_division, undefined):
    report = small_report(zero_division=zero_division, undefined=undefined)
    undefined_in = {
        metric: [isnan(value) for value in values] for metric, values in report.per_class.items()
    }
    assert undefined_in == {
        "auc": [False, False, True, True],
        "ap": [False, False, True, True],
        "bacc": [False, False, True, True],
        "precision": [False, True, False, True],
        "recall": [False, False, True, True],
        "specificity": [False, False, False, True],
        "f1": [False, False, False, True],
        "positives": [False] * 4,
        "negatives": [False] * 4,
    }
    assert report.defined == {
        "macro_auc": 2,
        "map": 2,
        "bacc": 2,
        "class_precision": 2,
        "class_recall": 2,
        "macro_f1": 3,
    }


@pytest.mark.parametrize(
    ("zero_division", "precision", "recall", "class_f1", "macro_f1"),
    [
        (0.0, 1 / 4, 1 / 4, 1 / 4, 1 / 4),
        (1, 3 / 4, 3 / 4, 3 / 4, 2 / 4),
        ("nan", None, None, None, None),
        ("skip", 1 / 2, 1 / 2, 1 / 2, 1 / 3),
    ],
)
def test_zero_division(zero_division, precision, recall, class_f1, macro_f1):
    # Precision 1, -, 0, -; recall 1, 0, -, -; F1 1, 0, 0, -.
    averages = small_report(zero_division=zero_division).to_dict()["averages"]
    assert averages["class_precision"] == precision
    assert averages["class_recall"] == recall
    assert averages["class_f1"] == class_f1
    assert averages["macro_f1"] == macro_f1


def test_the_number_of_averaged_classes_says_what_a_policy_adds():
    # Precision is undefined for two classes, which count as 0; AUC is left out where undefined.
    report = small_report()
    assert (report.averaged["class_precision"], report.defined["class_precision"]) == (4, 2)
    assert (report.averaged["macro_auc"], report.defined["macro_auc"]) == (2, 2)
    skipping = small_report(zero_division="skip", undefined="zero")
    assert (skipping.averaged["class_precision"], skipping.averaged["macro_auc"]) == (2, 4)
    assert report.to_dict()["averaged"] == report.averaged
    older = {name: value for name, value in report.to_dict().items() if name != "averaged"}
    assert Report.from_dict(older).averaged == report.averaged


def test_zero_replaces_only_the_undefined_half_of_bacc():
    # AUC 1, 0 (0.1 below 0.2), -, -; AP 1, 1/2, -, -; BACC 1, 1/2, then specificity 1/2 and none.
    skipped, zeroed = small_report().averages, small_report(undefined="zero").averages
    assert [skipped[name] for name in ("macro_auc", "map", "bacc")] == [1 / 2, 3 / 4, 3 / 4]
    assert [zeroed[name] for name in ("macro_auc", "map")] == [1 / 4, 3 / 8]
    assert zeroed["bacc"] == (1 + 1 / 2 + 1 / 4 + 0) / 4


@pytest.mark.parametrize(
    ("zero_division", "undefined", "divided", "ranked"),
    [
        (0, "skip", 0, None),
        (1, "zero", 1, 0),
        ("nan", "skip", None, None),
        ("skip", "zero", None, 0),
    ],
)
def test_nothing_known_at_all(zero_division, undefined, divided, ranked):
    report = score(
        *(PROBABILITIES, LABELS, torch.zeros_like(KNOWN), CLASSES),
        zero_division=zero_division,
        undefined=undefined,
    )
    averages = report.to_dict()["averages"]
    for name in ("overall_precision", "overall_recall", "overall_f1", "class_f1", "macro_f1"):
        assert averages[name] == divided, name
    for name in ("micro_auc", "overall_ap", "macro_auc", "map", "bacc"):
        assert averages[name] == ranked, name
    assert averages["hamming"] is averages["subset_accuracy"] is None
    assert set(report.defined.values()) == {0}


@pytest.mark.parametrize(
    ("zero_division", "expected"), [(0, 0), (1, 0), ("nan", None), ("skip", None)]
)
def test_class_f1_of_two_zeros(zero_division, expected):
    # One false positive and one false negative: precision and recall are defined and 0.
    report = score(
        *(torch.tensor([[0.9], [0.1]]), torch.tensor([[0], [1]])),
        *(torch.ones(2, 1, dtype=torch.bool), ["only"]),
        zero_division=zero_division,
    )
    averages = report.to_dict()["averages"]
    assert averages["class_precision"] == averages["class_recall"] == averages["macro_f1"] == 0
    assert averages["class_f1"] == expected


def test_samples_are_scored_by_their_known_entries():
    probabilities = torch.tensor([[0.9, 0.9], [0.9, 0.9], [0.9, 0.9]])
    labels = torch.tensor([[1, 0], [1, 0], [0, 0]])
    known = torch.tensor([[True, False], [True, True], [False, False]])
    averages = score(probabilities, labels, known, ["a", "b"]).averages
    assert averages["subset_accuracy"] == 1 / 2  # the last sample has no known entry
    assert averages["hamming"] == 1 / 3


@pytest.mark.parametrize("garbage", [7.0, float("nan"), 1.0, -1.0])
def test_labels_that_are_not_known_have_no_effect(garbage):
    generator = torch.Generator().manual_seed(3)
    probabilities = torch.rand(40, 4, generator=generator)
    labels = (torch.rand(40, 4, generator=generator) < 0.4).float()
    known = torch.rand(40, 4, generator=generator) < 0.6
    known[0] = False
    clean = score(probabilities, labels.masked_fill(~known, 0), known, CLASSES)
    dirty = score(probabilities, labels.masked_fill(~known, garbage), known, CLASSES)
    assert dirty == clean
    assert not any(isnan(value) for value in clean.averages.values())


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.uint8, torch.int64, torch.float16, torch.float64]
)
def test_labels_of_any_type(dtype):
    assert (
        small_report().to_dict() == score(PROBABILITIES, LABELS.to(dtype), KNOWN, CLASSES).to_dict()
    )


def test_a_threshold_per_class():
    recall = small_report(threshold=[0.95, 0.05, 0.5, 0.5]).per_class["recall"]
    assert recall[:2] == (0, 1)


def test_json_round_trip():
    report = small_report(zero_division="skip", undefined="zero")
    text = json.dumps(report.to_dict(), allow_nan=False)
    again = Report.from_dict(json.loads(text))
    assert again.to_dict() == report.to_dict() == json.loads(text)
    assert isnan(again.per_class["auc"][3])
    assert isinstance(again.per_class["auc"], tuple)
    assert (again.classes, again.zero_division, again.undefined) == (CLASSES, "skip", "zero")


def test_undefined_averages_are_read_as_nan():
    report = score(PROBABILITIES, LABELS, torch.zeros_like(KNOWN), CLASSES)
    assert report.to_dict()["averages"]["macro_auc"] is None
    assert isnan(Report.from_dict(report.to_dict()).averages["macro_auc"])


def test_stored_reports_must_be_complete():
    stored = small_report().to_dict()
    with pytest.raises(UserError, match="did you mean 'averages'"):
        Report.from_dict({**stored, "average": {}})
    del stored["defined"]
    with pytest.raises(UserError, match=r"lacks the fields \['defined'\]"):
        Report.from_dict(stored)


@pytest.mark.parametrize("undefined", ["skip", "zero"])
@pytest.mark.parametrize("zero_division", [0, 1, "skip"])
def test_all_classes_selected_are_the_averages(zero_division, undefined):
    report = small_report(zero_division=zero_division, undefined=undefined)
    selected = report.over_classes([True] * 4)
    assert selected == {name: report.averages[name] for name in selected}
    assert set(selected) == {"macro_auc", "map", "bacc", "macro_f1"}


def test_some_classes_selected():
    report = small_report()
    assert report.over_classes([False, True, True, False]) == {
        "macro_auc": 0,
        "map": 1 / 2,
        "bacc": 1 / 2,
        "macro_f1": 0,
    }
    zeroed = small_report(undefined="zero").over_classes([True, False, True, False])
    assert (zeroed["macro_auc"], zeroed["bacc"]) == (1 / 2, (1 + 1 / 4) / 2)


def test_no_class_selected_is_undefined():
    for policy in ({}, {"zero_division": 1, "undefined": "zero"}):
        nothing = small_report(**policy).over_classes([False] * 4)
        assert all(isnan(value) for value in nothing.values())


def test_selection_must_name_every_class():
    with pytest.raises(UserError, match="2 selections for 4 classes"):
        small_report().over_classes([True, False])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"zero_division": 0.5}, "0, 1, 'nan' or 'skip', found 0.5"),
        ({"undefined": "nan"}, "'skip' or 'zero', found 'nan'"),
        ({"classes": ["a", "b", "c"]}, "3 class names, 3 of them distinct, for 4 columns"),
        ({"classes": ["a", "b", "c", "c"]}, "4 class names, 3 of them distinct"),
        ({"probabilities": PROBABILITIES * 4 - 2}, "outside .*sigmoid"),
    ],
)
def test_wrong_inputs_are_refused(changed, message):
    given = {"probabilities": PROBABILITIES, "labels": LABELS, "known": KNOWN, "classes": CLASSES}
    with pytest.raises(UserError, match=message):
        score(**{**given, **changed})


def test_report_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        small_report().classes = ()
