"""Metrics against scikit-learn and torchmetrics on random problems, and their invariances."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn import metrics as reference
from support.metric_checks import check_averages, close, score_all
from torch import Tensor
from torchmetrics.functional import classification as torchmetrics

from fedquilt.metrics import average_precision, roc_auc, score


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
