from __future__ import annotations

import pytest
import torch

from fedquilt.core.errors import UserError
from fedquilt.metrics import Counts, count

SCORES = torch.tensor([[0.3, 0.8], [0.3, 0.6], [0.9, 0.2]])
LABELS = torch.tensor([[1, 1], [0, 0], [1, 1]])
KNOWN = torch.ones(3, 2, dtype=torch.bool)


def table(counts: Counts) -> list[list[int]]:
    """TP, FP, FN, TN, each with a number per class."""
    return [
        counts.true_positives.tolist(),
        counts.false_positives.tolist(),
        counts.false_negatives.tolist(),
        counts.true_negatives.tolist(),
    ]


def test_one_threshold_for_all_classes():
    assert table(count(SCORES, LABELS, KNOWN)) == [[1, 1], [0, 1], [1, 1], [1, 0]]


@pytest.mark.parametrize("kind", [list, tuple, torch.tensor])
def test_a_threshold_per_class(kind):
    counts = count(SCORES, LABELS, KNOWN, threshold=kind([0.95, 0.1]))
    assert table(counts) == [[0, 2], [0, 1], [2, 0], [1, 0]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("threshold", [0.3, [0.3, 0.3]])
def test_a_score_at_the_threshold_in_any_precision(dtype, threshold):
    # float32 0.3 is above Python's 0.3, float16 0.3 is below it: both count as at 0.3.
    scores = SCORES.double().to(dtype)
    scores[:2, 0] = 0.3
    inclusive = count(scores, LABELS, KNOWN, threshold=threshold)
    strict = count(scores, LABELS, KNOWN, threshold=threshold, strict=True)
    assert inclusive.true_positives[0] == 2
    assert strict.true_positives[0] == 1
    assert (inclusive.false_positives[0], strict.false_positives[0]) == (1, 0)


def test_unknown_entries_are_not_counted():
    known = torch.tensor([[True, False], [False, False], [True, True]])
    assert table(count(SCORES, LABELS, known)) == [[1, 0], [0, 0], [1, 1], [0, 0]]


def test_ratios_are_nan_where_undefined():
    counts = Counts(*(torch.tensor(values) for values in ([0, 3], [0, 1], [0, 2], [4, 2])))
    ratios = {
        "precision": counts.precision(),
        "recall": counts.recall(),
        "specificity": counts.specificity(),
        "balanced_accuracy": counts.balanced_accuracy(),
        "f1": counts.f1(),
    }
    assert {name for name, values in ratios.items() if values[0].isnan()} == {
        "precision",
        "recall",
        "balanced_accuracy",
        "f1",
    }
    assert [values[1].item() for values in ratios.values()] == pytest.approx(
        [3 / 4, 3 / 5, 2 / 3, (3 / 5 + 2 / 3) / 2, 6 / 9]
    )
    assert counts.hamming().tolist() == pytest.approx([0, 3 / 8])
    assert counts.pooled().hamming().item() == pytest.approx(3 / 12)


@pytest.mark.parametrize("threshold", [[0.5], [0.5, 0.5, 0.5], float("nan"), [[0.5, 0.5]]])
def test_thresholds_must_fit_the_classes(threshold):
    with pytest.raises(UserError, match="each of the 2 classes"):
        count(SCORES, LABELS, KNOWN, threshold=threshold)
