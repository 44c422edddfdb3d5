"""Divergences and mixtures of predictions against hand-computed numbers."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, tensor

from fedquilt.losses.distillation import bernoulli_kl, jensen_shannon, mixed_logits


def logit(*probabilities: float) -> Tensor:
    return torch.logit(tensor(probabilities, dtype=torch.float64))


def test_jensen_shannon_of_the_card() -> None:
    # m = 0.55; present: 0.5 (0.7 ln(0.7 / 0.55) + 0.4 ln(0.4 / 0.55)); absent with 1 - q.
    first, second = logit(0.7), logit(0.4)
    present = jensen_shannon(first, second, both_sides=False)
    assert present.item() == pytest.approx(0.0207160, abs=6e-8)
    assert jensen_shannon(first, second).item() == pytest.approx(0.0462008, abs=6e-8)
    assert jensen_shannon(second, first).item() == pytest.approx(0.0462008, abs=6e-8)


@pytest.mark.parametrize("both_sides", [True, False])
def test_jensen_shannon_is_never_negative_and_zero_for_equals(both_sides: bool) -> None:
    first = torch.linspace(-9, 9, 25, dtype=torch.float64)
    divergence = jensen_shannon(first[:, None], first[None, :], both_sides=both_sides)
    assert divergence.min() >= -1e-15
    assert divergence.diagonal().abs().max() < 1e-15


def test_certain_predictions_give_finite_divergences_and_gradients() -> None:
    first = tensor([800.0, -800.0], requires_grad=True)
    second = tensor([-800.0, -800.0])
    divergence = jensen_shannon(first, second)
    assert divergence.tolist() == pytest.approx([math.log(2), 0.0])  # the maximum
    (divergence + bernoulli_kl(second, first)).sum().backward()
    assert bool(first.grad.isfinite().all())


def test_bernoulli_kl_by_hand() -> None:
    # 0.8 ln(0.8 / 0.5) + 0.2 ln(0.2 / 0.5) = 0.3760029 - 0.1832581
    found = bernoulli_kl(logit(0.8), logit(0.5)).item()
    assert found == pytest.approx(0.1927448, abs=6e-8)
    assert bernoulli_kl(tensor(0.3), tensor(0.3)).item() == 0.0
    assert bernoulli_kl(tensor(1000.0), tensor(-1000.0)).item() == 1000.0  # -ln sigmoid(-1000)


def test_a_mixture_is_the_mean_of_probabilities() -> None:
    # 0.25 * 0.9 + 0.75 * 0.1 = 0.3
    mixed = mixed_logits(logit(0.9), logit(0.1), tensor(0.25, dtype=torch.float64))
    assert torch.sigmoid(mixed).item() == pytest.approx(0.3)


def test_a_sharpened_probability_of_the_card() -> None:
    # p^2 / (p^2 + (1 - p)^2) = sigmoid(2 logit p): 0.49 / 0.58
    same = mixed_logits(logit(0.7), logit(0.7), tensor(0.4, dtype=torch.float64))
    assert torch.sigmoid(2 * same).item() == pytest.approx(0.8448276, abs=6e-8)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_mixture_of_one_view_is_that_view(share: float) -> None:
    first, second = tensor([1.5, -300.0], requires_grad=True), tensor([-2.0, 40.0])
    mixed = mixed_logits(first, second, tensor(share))
    mixed.sum().backward()
    assert torch.allclose(mixed, first if share else second)
    assert first.grad.tolist() == pytest.approx([share, share])
