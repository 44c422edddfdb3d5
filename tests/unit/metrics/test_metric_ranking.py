from __future__ import annotations

from math import isnan

import pytest
import torch

from fedquilt.core.errors import UserError
from fedquilt.metrics import average_precision, roc_auc


def column(*values: float) -> torch.Tensor:
    return torch.tensor(values).unsqueeze(1)


def everything(values: torch.Tensor) -> torch.Tensor:
    return torch.ones_like(values, dtype=torch.bool)


def test_ties_count_half():
    scores, labels = column(0.9, 0.5, 0.5, 0.1), column(1, 1, 0, 0)
    # Pairs: 2 for 0.9, and 0.5 + 1 for the tied positive: 3.5 of 4.
    assert roc_auc(scores, labels, everything(scores)).item() == 3.5 / 4
    # Half of the recall at precision 1, the other half at precision 2/3.
    assert average_precision(scores, labels, everything(scores)).item() == pytest.approx(5 / 6)


def test_order_within_a_tie_does_not_matter():
    scores = column(0.5, 0.5, 0.5, 0.5, 0.2)
    for labels in (column(1, 0, 0, 1, 0), column(0, 1, 1, 0, 0), column(0, 0, 1, 1, 0)):
        assert roc_auc(scores, labels, everything(scores)).item() == pytest.approx(4 / 6)
        assert average_precision(scores, labels, everything(scores)).item() == 0.5


def test_undefined_is_nan_class_by_class():
    scores = torch.tensor([[0.2, 0.2, 0.2, 0.2], [0.8, 0.8, 0.8, 0.8]])
    labels = torch.tensor([[0, 1, 0, 0], [0, 1, 1, 1]])
    known = torch.tensor([[True, True, True, False], [True, True, True, False]])
    areas, precisions = roc_auc(scores, labels, known), average_precision(scores, labels, known)
    assert areas.isnan().tolist() == [True, True, False, True]
    assert precisions.isnan().tolist() == [True, False, False, True]
    assert precisions[1] == precisions[2] == areas[2] == 1
    assert areas.dtype == precisions.dtype == torch.float64


def test_no_samples_is_undefined():
    nothing = torch.zeros(0, 2)
    assert roc_auc(nothing, nothing, nothing.bool()).isnan().all()
    assert average_precision(nothing, nothing, nothing.bool()).isnan().all()


def test_unknown_entries_are_skipped():
    scores = column(0.95, 0.9, 0.8, 0.8, 0.3, 0.1)
    labels = column(1, 0, 1, 0, float("nan"), 0)
    known = column(False, True, True, False, False, True)
    assert roc_auc(scores, labels, known).item() == 0.5  # above 0.1, below 0.9
    assert average_precision(scores, labels, known).item() == 0.5


def test_scores_that_differ_in_the_last_bit_are_not_tied():
    low = torch.tensor(0.5, dtype=torch.float64)
    high = torch.nextafter(low, torch.tensor(1.0, dtype=torch.float64))
    scores = torch.stack([low, high]).unsqueeze(1)
    assert roc_auc(scores, column(0, 1), everything(scores)).item() == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_low_precision_scores(dtype):
    scores = column(0.75, 0.5, 0.5, 0.25).to(dtype)
    assert roc_auc(scores, column(1, 1, 0, 0), everything(scores)).item() == 3.5 / 4


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_scores_must_be_finite(wrong):
    scores = torch.tensor([[0.1, 0.2], [0.3, wrong]])
    with pytest.raises(UserError, match=r"finite.*row 1, column 1; 1 such"):
        roc_auc(scores, torch.zeros(2, 2), everything(scores))


def test_known_labels_must_be_zero_or_one():
    labels = torch.tensor([[0, 7], [7, 1]])
    known = torch.tensor([[True, False], [False, True]])
    assert isnan(roc_auc(torch.rand(2, 2), labels, known)[0])
    with pytest.raises(UserError, match=r"0 or 1 \(found 7 in row 0, column 1; 2 such"):
        roc_auc(torch.rand(2, 2), labels, torch.ones_like(known))


def test_shapes_and_types_are_checked():
    scores, labels, known = torch.rand(3, 2), torch.zeros(3, 2), torch.ones(3, 2).bool()
    for wrong, message in (
        ((scores, labels[:2], known), "labels has shape"),
        ((scores, labels, known[:, :1]), "known has shape"),
        ((scores[:, 0], labels[:, 0], known[:, 0]), "floating point of shape"),
        ((scores.long(), labels, known), "floating point of shape"),
        ((scores, labels, known.int()), "known must be bool"),
    ):
        with pytest.raises(UserError, match=message):
            average_precision(*wrong)
