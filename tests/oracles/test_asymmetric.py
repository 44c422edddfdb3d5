"""The asymmetric loss against numbers worked out by hand and a plain NumPy loop."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import tensor

from fedquilt.losses.cross_entropy import asymmetric_loss

YES = tensor([[True]])


def test_a_positive_and_a_negative_at_one_half():
    # present: (1 - 0.5)^1 * ln 2 = 0.346574
    found = asymmetric_loss(tensor([[0.0]]), tensor([[1.0]]), YES).item()
    assert found == pytest.approx(0.346574, abs=1e-6)
    # absent: p = 0.5 - 0.05; 0.45^4 * -ln(1 - 0.45) = 0.041006 * 0.597837 = 0.024515
    found = asymmetric_loss(tensor([[0.0]]), tensor([[0.0]]), YES).item()
    assert found == pytest.approx(0.024515, abs=1e-6)


def test_a_negative_below_the_margin_has_no_loss_and_no_gradient():
    logits = tensor([[-3.0]], requires_grad=True)  # p = 0.0474
    loss = asymmetric_loss(logits, tensor([[0.0]]), YES)
    loss.backward()
    assert loss.item() == 0
    assert logits.grad.item() == 0


@pytest.mark.parametrize("focus", [(4.0, 1.0), (0.0, 0.0), (2.0, 3.0)])
def test_against_a_loop_over_known_entries(focus: tuple[float, float]):
    generator = torch.Generator().manual_seed(3)
    logits = 3 * torch.randn(9, 4, generator=generator, dtype=torch.float64)
    labels = (torch.rand(9, 4, generator=generator) < 0.4).double()
    known = torch.rand(9, 4, generator=generator) < 0.6
    weight = torch.rand(4, generator=generator, dtype=torch.float64)
    expected = 0.0
    for row, column in known.nonzero().tolist():
        p = 1 / (1 + np.exp(-logits[row, column].item()))
        if labels[row, column]:
            expected -= weight[column].item() * (1 - p) ** focus[1] * np.log(p)
        else:
            p = max(p - 0.05, 0.0)
            expected -= p ** focus[0] * np.log(1 - p)
    noise = torch.where(known, labels, 7.0)
    found = asymmetric_loss(logits, noise, known, weight, focus).item()
    assert found == pytest.approx(expected, rel=1e-9)


def test_without_focus_and_margin_it_is_the_summed_cross_entropy():
    logits = tensor([[0.3, -1.0], [2.0, 30.0]], requires_grad=True)
    labels = tensor([[1.0, 0.0], [1.0, 0.0]])
    loss = asymmetric_loss(logits, labels, labels >= 0, None, (0.0, 0.0), 0.0)
    plain = torch.nn.functional.binary_cross_entropy_with_logits(logits, labels, reduction="sum")
    assert loss.item() == pytest.approx(plain.item(), rel=1e-6)
    loss.backward()
    assert logits.grad[1, 1].item() == pytest.approx(1.0, rel=1e-5)  # not saturated


def test_gradients_pass_through_the_factors():
    # By finite differences; detached factors would give other gradients.
    logits = tensor([[0.4, -0.7, 1.3]], dtype=torch.float64, requires_grad=True)
    labels = tensor([[1.0, 0.0, 0.0]], dtype=torch.float64)
    assert torch.autograd.gradcheck(
        lambda scores: asymmetric_loss(scores, labels, labels >= 0), (logits,)
    )
