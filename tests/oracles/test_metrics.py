"""Metrics against hand-made numbers, scikit-learn, torchmetrics and their own properties."""

from __future__ import annotations

import pytest
import torch
from support.metric_checks import check_averages, close, score_all

from fedquilt.metrics import count

LABELS = torch.tensor([[1, 0, 0], [1, 1, 0], [0, 1, 1], [0, 0, 0], [1, 0, 1]])
PROBABILITIES = torch.tensor(
    [[0.9, 0.2, 0.6], [0.4, 0.8, 0.1], [0.7, 0.3, 0.65], [0.1, 0.6, 0.3], [0.55, 0.05, 0.5]]
)
# Class c has no positive: its only error is one false positive, at 0.6.
LABELS_ONE_SIDED = torch.tensor([[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 0]])
PROBABILITIES_ONE_SIDED = torch.tensor(
    [[0.9, 0.2, 0.6], [0.4, 0.8, 0.1], [0.7, 0.3, 0.2], [0.1, 0.6, 0.3]]
)


def test_counts_at_the_threshold():
    counts = count(PROBABILITIES, LABELS, torch.ones_like(LABELS, dtype=torch.bool))
    assert counts.true_positives.tolist() == [2, 1, 2]
    assert counts.false_positives.tolist() == [1, 1, 1]
    assert counts.false_negatives.tolist() == [1, 1, 0]
    assert counts.true_negatives.tolist() == [1, 2, 2]


def test_inclusive_threshold():
    report = score_all(PROBABILITIES, LABELS)
    assert report.per_class["precision"] == close(2 / 3, 1 / 2, 2 / 3)
    assert report.per_class["recall"] == close(2 / 3, 1 / 2, 1)
    assert report.per_class["specificity"] == close(1 / 2, 2 / 3, 2 / 3)
    assert report.per_class["f1"] == close(2 / 3, 1 / 2, 4 / 5)
    assert report.per_class["bacc"] == close(0.583333, 0.583333, 0.833333)
    assert report.per_class["positives"] == (3, 2, 2)
    assert report.per_class["negatives"] == (2, 3, 3)
    check_averages(
        report,
        bacc=0.666667,
        class_precision=0.611111,
        class_recall=0.722222,
        class_f1=0.662037,  # 2 * 11/18 * 13/18 / (24/18)
        macro_f1=0.655556,
        overall_precision=5 / 8,
        overall_recall=5 / 7,
        overall_f1=2 / 3,
        hamming=5 / 15,
        subset_accuracy=1 / 5,  # only the last row: 1, 0, 1
    )
    assert set(report.defined.values()) == {3}


def test_strict_threshold_excludes_the_entry_at_one_half():
    report = score_all(PROBABILITIES, LABELS, strict=True)
    check_averages(
        report,
        bacc=0.583333,
        class_precision=0.555556,
        class_recall=0.555556,
        class_f1=0.555556,
        macro_f1=0.555556,
        overall_precision=4 / 7,
        overall_recall=4 / 7,
        overall_f1=4 / 7,
        hamming=6 / 15,
        subset_accuracy=0,
    )


@pytest.mark.parametrize("strict", [False, True])
def test_ranking_needs_no_threshold(strict):
    report = score_all(PROBABILITIES, LABELS, strict=strict)
    # Class a, positives at ranks 1, 3, 4: AP = (1 + 2/3 + 3/4) / 3; 4 of 6 pairs are in order.
    assert report.per_class["ap"] == close(0.805556, 0.833333, 0.833333)
    assert report.per_class["auc"] == close(4 / 6, 5 / 6, 5 / 6)
    check_averages(
        report, map=0.824074, overall_ap=0.749923, macro_auc=0.777778, micro_auc=0.758929
    )


def test_class_that_is_never_predicted():
    probabilities = PROBABILITIES.clone()
    probabilities[:, 1] = 0.1
    report = score_all(probabilities, LABELS)
    assert report.per_class["precision"] == close(2 / 3, float("nan"), 2 / 3)
    assert report.defined["class_precision"] == 2
    assert report.per_class["ap"][1] == close(2 / 5)  # constant scores: the prevalence
    assert report.per_class["auc"][1] == close(1 / 2)
    assert report.per_class["bacc"][1] == close(1 / 2)
    check_averages(
        report,
        class_precision=0.444444,
        class_recall=0.555556,
        class_f1=0.493827,
        macro_f1=0.488889,
        overall_f1=0.615385,
        map=0.679630,
        macro_auc=0.666667,
        overall_ap=0.654422,
        micro_auc=0.678571,
    )


@pytest.mark.parametrize(
    ("undefined", "mean_ap", "macro_auc", "bacc"),
    [("skip", 0.833333, 0.75, 0.5), ("zero", 0.555556, 0.5, 0.458333)],
)
def test_class_without_positives(undefined, mean_ap, macro_auc, bacc):
    report = score_all(PROBABILITIES_ONE_SIDED, LABELS_ONE_SIDED, undefined=undefined)
    check_averages(report, map=mean_ap, macro_auc=macro_auc, bacc=bacc)
    check_averages(
        report,
        overall_ap=0.75,
        micro_auc=0.796875,
        class_precision=1 / 3,
        class_recall=1 / 3,
        class_f1=1 / 3,
        macro_f1=1 / 3,
        overall_precision=2 / 5,
        overall_recall=2 / 4,
        overall_f1=4 / 9,
    )
    for metric in ("auc", "ap", "bacc", "recall"):
        assert report.per_class[metric][2] == close(float("nan")), metric
    assert [report.defined[name] for name in ("macro_auc", "map", "bacc", "class_recall")] == [
        2
    ] * 4
    assert report.defined["macro_f1"] == report.defined["class_precision"] == 3


def test_class_f1_is_macro_f1_when_all_classes_have_equal_counts():
    # Each class: TP 2, FP 1, FN 2, so precision 2/3, recall 1/2 and F1 4/7, in different rows.
    labels = torch.tensor([1, 1, 1, 1, 0, 0])
    values = torch.tensor([0.9, 0.8, 0.2, 0.1, 0.7, 0.3])
    shifted = [torch.stack([t.roll(shift) for shift in range(3)], 1) for t in (values, labels)]
    check_averages(score_all(*shifted), class_f1=4 / 7, macro_f1=4 / 7)


def test_constant_scores_and_an_all_negative_prediction():
    report = score_all(torch.full((5, 3), 0.3), LABELS)
    assert report.per_class["auc"] == (0.5, 0.5, 0.5)
    assert report.per_class["ap"] == close(3 / 5, 2 / 5, 2 / 5)
    assert report.per_class["bacc"] == (0.5, 0.5, 0.5)
