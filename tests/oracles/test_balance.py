"""Balanced cross-entropy: positives and negatives of a class have equal total weight."""

from __future__ import annotations

import pytest
import torch
from torch import tensor

from fedquilt.losses.cross_entropy import balance_weights, balanced_bce, masked_bce

ONES = torch.ones(2)


def test_weights_are_half_of_the_annotated_over_positives_or_negatives():
    # class 0: 2 of 10 present: 10 / (2 * 8) and 10 / (2 * 2). class 1: 5 of 10.
    weights = balance_weights(tensor([2, 5]), tensor([10, 10]), cap=100.0)
    assert weights.tolist() == [[0.625, 1.0], [2.5, 1.0]]


def test_weights_are_capped_and_1_where_there_is_nothing_to_weigh():
    # class 0: 1 of 1000 present, 500 without a cap; class 1: none; class 2: none annotated.
    weights = balance_weights(tensor([1, 0, 0]), tensor([1000, 8, 0]), cap=20.0)
    assert weights[1].tolist() == [20.0, 1.0, 1.0]
    assert weights[0].tolist() == pytest.approx([1000 / 1998, 0.5, 1.0])
    assert bool(weights.isfinite().all())


def test_equally_many_positives_and_negatives_give_plain_cross_entropy():
    logits = tensor([[0.3, -1.0], [2.0, 0.7]])
    labels = tensor([[1.0, 0.0], [0.0, 1.0]])
    known = torch.ones(2, 2, dtype=torch.bool)
    weights = balance_weights(tensor([1, 1]), tensor([2, 2]), cap=100.0)
    plain = masked_bce(logits, labels, known)
    assert torch.equal(balanced_bce(logits, labels, known, weights, ONES), plain)
    # The authors' weights, 1e5 / n of each kind, are the same up to a constant.
    scaled = balanced_bce(logits, labels, known, weights * 1e5, ONES)
    assert scaled.item() == pytest.approx(1e5 * plain.item(), rel=1e-6)


def test_a_weight_applies_to_its_own_class_and_kind_only():
    logits, known = torch.zeros(2, 2), tensor([[True, True], [True, False]])
    labels = tensor([[1.0, 0.0], [0.0, 7.0]])
    balance = tensor([[3.0, 5.0], [2.0, 9.0]])
    # ln 2 each; weights 2 (class 0 present), 5 (class 1 absent), 3 (class 0 absent); mean of 3.
    found = balanced_bce(logits, labels, known, balance, ONES).item()
    assert found == pytest.approx(10 / 3 * 0.693147, rel=1e-5)


def test_the_mean_of_the_classes_weights_is_without_a_cap():
    # class 0: 2 of 10 present, 1e5 / 8 and 1e5 / 2; class 1: none of 4, 1e5 / 4 for negatives only.
    weights = balance_weights(tensor([2, 0]), tensor([10, 4]), cap=1.0, mean=True)
    assert weights.tolist() == [[18_750.0, 18_750.0], [50_000.0, 50_000.0]]
    assert bool(balance_weights(tensor([0]), tensor([0]), cap=1.0, mean=True).isfinite().all())
