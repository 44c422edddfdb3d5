"""Losses against a plain NumPy loop and against the numbers of the method cards."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn, tensor

from fedquilt.losses.class_prior import (
    adjust_logits,
    clamp_prior,
    logit_suppression,
    positive_weight,
)
from fedquilt.losses.cross_entropy import elementwise_bce, masked_bce, masked_mean
from fedquilt.losses.proximal import squared_distance, weighted_squared_distance

# The fixture of the method cards, section 6: classes 0 and 2 are annotated.
LOGITS = tensor([[0.3, -1.0, 2.0], [-0.5, 0.7, 0.0]], dtype=torch.float64)
LABELS = tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
WEIGHT = tensor([4.0, 1.0, 2.0], dtype=torch.float64)
ACTIVE = tensor([[True, False, True], [True, False, True]])


def reference(logits: Tensor, labels: Tensor, known: Tensor, weight: Tensor | None) -> float:
    """The mean over known entries of w y log(1 + e^-z) + (1 - y) log(1 + e^z), one by one."""
    entries = []
    for row in range(logits.shape[0]):
        for column in range(logits.shape[1]):
            if known[row, column]:
                z, y = float(logits[row, column]), float(labels[row, column])
                w = 1.0 if weight is None else float(weight[column])
                entries.append(w * y * np.logaddexp(0, -z) + (1 - y) * np.logaddexp(0, z))
    return float(np.mean(entries)) if entries else 0.0


def random_case(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = 5 * torch.randn(11, 4, generator=generator)
    labels = (torch.rand(11, 4, generator=generator) < 0.4).to(torch.float32)
    known = torch.rand(11, 4, generator=generator) < 0.6
    weight = 10 * torch.rand(4, generator=generator)
    return logits, labels, known, weight


def test_elements_of_the_fixture():
    expected = [2.2174210, 0.3132617, 2.1269280, 0.4740770, 1.1031860, 1.3862944]
    found = elementwise_bce(LOGITS, LABELS, WEIGHT).flatten().tolist()
    assert found == pytest.approx(expected, abs=6e-8)


def test_fedavg_of_the_fixture():
    everything = torch.ones_like(ACTIVE)
    loss = masked_bce(LOGITS, LABELS, everything, WEIGHT)
    assert loss.item() == pytest.approx(1.2701947, abs=6e-8)


def test_partial_loss_of_the_fixture():
    assert masked_bce(LOGITS, LABELS, ACTIVE, WEIGHT).item() == pytest.approx(1.5511801, abs=6e-8)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("weighted", [True, False])
def test_masked_bce_equals_a_plain_loop(seed, weighted):
    logits, labels, known, weight = random_case(seed)
    given = weight if weighted else None
    found = masked_bce(logits, labels, known, given).item()
    assert found == pytest.approx(reference(logits, labels, known, given), rel=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_the_gradient_of_masked_bce_by_hand(seed):
    logits, labels, known, weight = random_case(seed)
    logits.requires_grad_()
    masked_bce(logits, labels, known, weight).backward()
    # d/dz of an entry: (1 - y) sigmoid(z) - w y sigmoid(-z), divided by the number of entries.
    z, y = logits.detach(), labels
    gradient = (1 - y) * torch.sigmoid(z) - weight * y * torch.sigmoid(-z)
    expected = torch.where(known, gradient, torch.zeros(())) / known.sum()
    assert torch.allclose(logits.grad, expected, atol=1e-7)


@pytest.mark.parametrize("garbage", [math.nan, math.inf, -7.0, 255.0])
def test_garbage_outside_known_changes_no_bit(garbage):
    results = []
    for hidden in (0.0, garbage):
        logits, labels, known, weight = random_case(0)
        logits.requires_grad_()
        loss = masked_bce(logits, torch.where(known, labels, tensor(hidden)), known, weight)
        loss.backward()
        results.append((loss.detach(), logits.grad))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])


@pytest.mark.parametrize("hidden", [0.0, math.nan])
def test_an_empty_mask_gives_zero_and_a_zero_gradient(hidden):
    logits = LOGITS.clone().requires_grad_()
    labels = torch.full_like(LABELS, hidden)
    loss = masked_bce(logits, labels, torch.zeros(2, 3, dtype=torch.bool), WEIGHT)
    loss.backward()
    assert loss.item() == 0.0
    assert torch.equal(logits.grad, torch.zeros_like(LOGITS))


def test_extreme_logits_stay_finite():
    logits = tensor([[1e4, -1e4]]).requires_grad_()
    loss = masked_bce(logits, tensor([[0.0, 1.0]]), torch.ones(1, 2, dtype=torch.bool))
    loss.backward()
    assert loss.item() == 1e4
    assert logits.grad.tolist() == [[0.5, -0.5]]


def test_masked_mean_by_hand():
    values = tensor([[1.0, math.nan], [math.inf, 4.0]])
    mask = tensor([[True, False], [False, True]])
    assert masked_mean(values, mask).item() == 2.5


def test_positive_weight_of_each_kind():
    positives, annotated = tensor([5, 0, 10, 4]), tensor([20, 20, 10, 0])
    # Class 1 has no positive, class 3 no annotation: nothing to weigh.
    assert positive_weight("none", positives, annotated).tolist() == [1, 1, 1, 1]
    inverse = positive_weight("inverse-prevalence", positives, annotated)
    assert inverse.tolist() == [4, 1, 1, 1]  # 20 / 5, -, 10 / 10, -
    # 15 / 5; class 2 has no negative, and a weight of 0 would drop its positives.
    odds = positive_weight("odds", positives[:3], annotated[:3])
    assert odds.tolist() == [3, 1, 1]


def test_positive_weight_is_float32_and_capped():
    weight = positive_weight("inverse-prevalence", tensor([1, 50]), tensor([100, 100]), cap=20.0)
    assert weight.dtype == torch.float32
    assert weight.tolist() == [20.0, 2.0]


def test_adjusted_logits_follow_bayes_rule():
    logits, prior = tensor([[0.0, 1.0, -2.0]]), tensor([0.5, 0.2, 0.9])
    y = torch.sigmoid(logits)
    expected = y * prior / (y * prior + (1 - y) * (1 - prior))
    assert torch.allclose(torch.sigmoid(adjust_logits(logits, prior)), expected)


def test_a_prior_is_kept_off_zero_and_one():
    clamped = clamp_prior(tensor([0.0, 0.5, 1.0]), 8)
    assert clamped.tolist() == pytest.approx([0.1, 0.5, 0.9])  # 1 / (8 + 2)
    assert bool(adjust_logits(torch.zeros(3), clamped).isfinite().all())


def test_suppression_by_hand():
    # Class 0: negatives are rows 0 and 2, pi = 0.5: ln(e^1 / 0.5 + e^0 / 0.5) - ln 3
    # Class 1 has no negative. Class 2: one negative, row 1, of two annotated, pi = 0.25.
    logits = tensor([[1.0, 5.0, 7.0], [9.0, 5.0, -1.0], [0.0, 5.0, 2.0]], requires_grad=True)
    negatives = tensor([[True, False, False], [False, False, True], [True, False, False]])
    annotated = tensor([[True, True, False], [True, True, True], [True, True, True]])
    found = logit_suppression(logits, negatives, annotated, tensor([0.5, 0.3, 0.25]))
    one = 0.5 * (math.log(2 * math.e + 2) - math.log(3))
    other = 0.25 * (-1 - math.log(0.25) - math.log(2))
    assert found.item() == pytest.approx(one + other)
    found.backward()
    share = 0.5 * math.e / (math.e + 1)  # pi times the softmax over negatives
    assert logits.grad[:, 0].tolist() == pytest.approx([share, 0.0, 0.5 - share])
    assert logits.grad[:, 1].tolist() == [0.0, 0.0, 0.0]
    assert logits.grad[:, 2].tolist() == [0.0, 0.25, 0.0]


def test_squared_distance_by_hand():
    weights = {"a": nn.Parameter(tensor([3.0, 1.0])), "b": nn.Parameter(tensor([[2.0]]))}
    anchor = {"a": tensor([1.0, 1.0]), "b": tensor([[-1.0]]), "buffer": tensor([9.0])}
    distance = squared_distance(weights.items(), anchor)
    distance.backward()
    assert distance.item() == 13.0  # 4 + 0 + 9
    assert weights["a"].grad.tolist() == [4.0, 0.0]
    assert weights["b"].grad.tolist() == [[6.0]]


def test_squared_distance_has_a_gradient_at_the_anchor():
    """A norm has none there, and training starts there."""
    weights = {"a": nn.Parameter(tensor([3.0]))}
    squared_distance(weights.items(), {"a": tensor([3.0])}).backward()
    assert weights["a"].grad.tolist() == [0.0]


def test_weighted_squared_distance_by_hand():
    weights = {"a": nn.Parameter(tensor([3.0, 1.0])), "frozen": nn.Parameter(tensor([9.0]))}
    anchor, importance = {"a": tensor([1.0, 4.0])}, {"a": tensor([0.5, 0.0])}
    distance = weighted_squared_distance(weights, anchor, importance)
    distance.backward()
    assert distance.item() == pytest.approx(2.0)  # 0.5 * (3 - 1)^2 + 0 * (1 - 4)^2
    assert weights["a"].grad.tolist() == [2.0, 0.0]  # 2 * 0.5 * (3 - 1)
