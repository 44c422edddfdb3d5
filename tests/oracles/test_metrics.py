"""Metrics against hand-made numbers, scikit-learn, torchmetrics and their own properties."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn import metrics as reference
from torch import Tensor
from torchmetrics.functional import classification as torchmetrics

from fedquilt.metrics import Report, average_precision, count, roc_auc, score

LABELS = torch.tensor([[1, 0, 0], [1, 1, 0], [0, 1, 1], [0, 0, 0], [1, 0, 1]])
PROBABILITIES = torch.tensor(
    [[0.9, 0.2, 0.6], [0.4, 0.8, 0.1], [0.7, 0.3, 0.65], [0.1, 0.6, 0.3], [0.55, 0.05, 0.5]]
)
# Class c has no positive: its only error is one false positive, at 0.6.
LABELS_ONE_SIDED = torch.tensor([[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 0]])
PROBABILITIES_ONE_SIDED = torch.tensor(
    [[0.9, 0.2, 0.6], [0.4, 0.8, 0.1], [0.7, 0.3, 0.2], [0.1, 0.6, 0.3]]
)


def close(*values: float) -> object:
    return pytest.approx(values[0] if len(values) == 1 else values, abs=1e-6, nan_ok=True)


def score_all(probabilities: Tensor, labels: Tensor, **options: object) -> Report:
    known = torch.ones_like(labels, dtype=torch.bool)
    names = tuple(f"class {column}" for column in range(labels.shape[1]))
    return score(probabilities, labels, known, names, **options)


def check_averages(report: Report, **expected: float) -> None:
    for name, value in expected.items():
        assert report.averages[name] == close(value), name


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


def random_problem(seed: int, levels: int | None = 7, samples: int = 60, width: int = 5):
    """Scores with many ties (``levels`` distinct values; None for no ties), labels, known."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.rand(samples, width, generator=generator, dtype=torch.float64)
    if levels is not None:
        scores = (scores * (levels - 1)).round() / (levels - 1)
    labels = (torch.rand(samples, width, generator=generator) < 0.35).long()
    known = torch.rand(samples, width, generator=generator) < 0.7
    return scores, labels, known


def names_of(scores: Tensor) -> list[str]:
    return [str(column) for column in range(scores.shape[1])]


PROBLEMS = [(seed, levels) for seed in range(4) for levels in (2, 3, 7, None)]


@pytest.mark.parametrize(("seed", "levels"), PROBLEMS)
def test_ranking_agrees_with_scikit_learn(seed, levels):
    scores, labels, known = random_problem(seed, levels)
    report = score(scores, labels, known, names_of(scores))
    for column, mask in enumerate(known.T):
        truth, values = labels[mask, column].numpy(), scores[mask, column].numpy()
        assert report.per_class["auc"][column] == pytest.approx(
            reference.roc_auc_score(truth, values), abs=1e-12
        )
        assert report.per_class["ap"][column] == pytest.approx(
            reference.average_precision_score(truth, values), abs=1e-12
        )
    pooled = labels[known].numpy(), scores[known].numpy()
    assert report.averages["micro_auc"] == pytest.approx(reference.roc_auc_score(*pooled))
    assert report.averages["overall_ap"] == pytest.approx(
        reference.average_precision_score(*pooled)
    )


@pytest.mark.parametrize("zero_division", [0.0, 1.0])
@pytest.mark.parametrize(("seed", "levels"), PROBLEMS)
def test_predictions_agree_with_scikit_learn(seed, levels, zero_division):
    scores, labels, known = random_problem(seed, levels)
    scores[:, 0] *= 0.4  # never predicted
    labels[:, 1] = 0  # no positive
    labels[:, 2], scores[:, 2] = 0, 0  # neither
    report = score(scores, labels, known, names_of(scores), zero_division=zero_division)
    expected = []
    for column, mask in enumerate(known.T):
        truth = labels[mask, column].numpy()
        predicted = (scores[mask, column] >= 0.5).long().numpy()
        expected.append(
            reference.precision_recall_fscore_support(
                truth, predicted, average="binary", zero_division=zero_division
            )[:3]
        )
        undefined = (int(predicted.sum()) == 0, int(truth.sum()) == 0)
        for metric, value, is_undefined in zip(
            ("precision", "recall", "f1"), expected[-1], (*undefined, all(undefined))
        ):
            value = float("nan") if is_undefined else value
            assert report.per_class[metric][column] == close(value), (metric, column)
    precision, recall, f1 = np.mean(expected, axis=0)
    check_averages(report, class_precision=precision, class_recall=recall, macro_f1=f1)
    truth, predicted = labels[known].numpy(), (scores[known] >= 0.5).long().numpy()
    overall = reference.precision_recall_fscore_support(
        truth, predicted, average="binary", zero_division=zero_division
    )
    check_averages(
        report,
        overall_precision=overall[0],
        overall_recall=overall[1],
        overall_f1=overall[2],
        hamming=reference.zero_one_loss(truth, predicted),
    )


@pytest.mark.parametrize("seed", range(4))
def test_whole_rows_agree_with_scikit_learn(seed):
    scores, labels, _ = random_problem(seed, width=2)
    report = score_all(scores, labels)
    predicted = (scores >= 0.5).long().numpy()
    assert report.averages["subset_accuracy"] == close(
        reference.accuracy_score(labels.numpy(), predicted)
    )
    assert report.averages["hamming"] == close(reference.hamming_loss(labels.numpy(), predicted))
    for column in range(2):
        assert report.per_class["bacc"][column] == close(
            reference.balanced_accuracy_score(labels[:, column].numpy(), predicted[:, column])
        )


@pytest.mark.parametrize(("seed", "levels"), PROBLEMS)
def test_agrees_with_torchmetrics(seed, levels):
    scores, labels, known = random_problem(seed, levels)
    report = score(scores, labels, known, names_of(scores), strict=True)  # its threshold is strict
    masked = labels.masked_fill(~known, -1)
    options = {"num_labels": 5, "ignore_index": -1}
    for metric, function in {
        "auc": torchmetrics.multilabel_auroc,
        "ap": torchmetrics.multilabel_average_precision,
        "precision": torchmetrics.multilabel_precision,
        "recall": torchmetrics.multilabel_recall,
        "specificity": torchmetrics.multilabel_specificity,
        "f1": torchmetrics.multilabel_f1_score,
    }.items():
        expected = function(scores, masked, average=None, **options).tolist()
        assert report.per_class[metric] == close(*expected), metric
    for average, function in {
        "overall_precision": torchmetrics.multilabel_precision,
        "overall_recall": torchmetrics.multilabel_recall,
        "overall_f1": torchmetrics.multilabel_f1_score,
        "micro_auc": torchmetrics.multilabel_auroc,
        "overall_ap": torchmetrics.multilabel_average_precision,
    }.items():
        expected = function(scores, masked, average="micro", **options).item()
        assert report.averages[average] == close(expected), average


@pytest.mark.parametrize("seed", range(5))
def test_order_of_samples_and_classes_changes_nothing(seed):
    scores, labels, known = random_problem(seed)
    generator = torch.Generator().manual_seed(seed)
    rows, columns = (torch.randperm(size, generator=generator) for size in scores.shape)
    before = score(scores, labels, known, names_of(scores))
    after = score(*(t[rows][:, columns] for t in (scores, labels, known)), names_of(scores))
    assert after.averages == pytest.approx(before.averages, abs=1e-12)
    for metric, values in before.per_class.items():
        permuted = [values[column] for column in columns.tolist()]
        assert after.per_class[metric] == pytest.approx(permuted, abs=1e-12), metric


@pytest.mark.parametrize("seed", range(5))
def test_only_the_order_within_a_class_matters_to_the_ranking(seed):
    scores, labels, known = random_problem(seed)
    slopes = torch.linspace(0.1, 2.0, 5, dtype=torch.float64)
    per_class = slopes * scores**3 - 1  # strictly increasing, another map in each class
    assert torch.equal(roc_auc(per_class, labels, known), roc_auc(scores, labels, known))
    assert torch.equal(
        average_precision(per_class, labels, known), average_precision(scores, labels, known)
    )


@pytest.mark.parametrize("seed", range(5))
def test_pooled_ranking_needs_one_map_for_all_classes(seed):
    scores, labels, known = random_problem(seed)
    names = names_of(scores)
    before, common, different = (
        score(values, labels, known, names).averages
        for values in (scores, scores**3 / 2, scores * torch.linspace(0.1, 1.0, 5))
    )
    for name in ("micro_auc", "overall_ap"):
        assert common[name] == before[name]
        assert abs(different[name] - before[name]) > 1e-4


@pytest.mark.parametrize("seed", range(5))
def test_negated_scores_mirror_the_auc(seed):
    scores, labels, known = random_problem(seed)
    torch.testing.assert_close(roc_auc(-scores, labels, known), 1 - roc_auc(scores, labels, known))


@pytest.mark.parametrize("seed", range(20))
def test_f1_stays_within_its_bounds(seed):
    scores, labels, known = random_problem(seed, samples=6)
    averages = score(scores, labels, known, names_of(scores)).averages
    precision, recall = averages["overall_precision"], averages["overall_recall"]
    assert min(precision, recall) - 1e-12 <= averages["overall_f1"]
    assert averages["overall_f1"] <= max(precision, recall) + 1e-12
    bound = 2 * min(averages["class_precision"], averages["class_recall"])
    assert 0 <= averages["class_f1"] <= min(1, bound) + 1e-12


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
