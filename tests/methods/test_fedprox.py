"""FedProx: the pull towards the received weights, on numbers of its card."""

from __future__ import annotations

import pytest
import torch
from scalar_client import train_one_weight

from fedquilt.losses.proximal import squared_distance
from fedquilt.method import Local
from fedquilt.methods.fedavg import FedAvg
from fedquilt.methods.fedprox import FedProx


@pytest.mark.parametrize(("mu", "expected"), [(0.0, 2.53), (0.1, 2.521), (1.0, 2.44)])
def test_two_steps_on_a_parabola(
    mu: float, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    # f = 1.5 (w - 4)^2 has the gradient 3 (w - 4); from w = 1 with lr 0.1: w = 1 + 0.9 = 1.9,
    # then w = 1.9 + 0.1 (6.3 - 0.9 mu) = 2.53 - 0.09 mu.
    monkeypatch.setattr(FedAvg, "loss", lambda self, local, batch: torch.zeros(()))
    method = FedProx(mu=mu)

    def pull(local: Local) -> torch.Tensor:
        return method.loss(local, None)  # type: ignore[arg-type]

    received = {"weights": {"w": torch.tensor([1.0], dtype=torch.float64)}}
    weights, _, _ = train_one_weight(
        method, lambda w: 1.5 * (w - 4) ** 2, received, {}, steps=2, lr=0.1, extra=pull
    )
    assert weights["w"].item() == pytest.approx(expected, abs=1e-12)


def test_the_gradient_at_the_anchor_is_zero_not_nan() -> None:
    weight = torch.tensor([2.0, -1.0], requires_grad=True)
    squared_distance([("w", weight)], {"w": weight.detach().clone()}).backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [0.0, 0.0]
