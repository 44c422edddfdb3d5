"""FedProx: the pull towards the received weights, on numbers of its card."""

from __future__ import annotations

import pytest
import torch
from support.scalar_client import train_one_weight

from fedquilt.core.errors import UserError
from fedquilt.losses.proximal import squared_distance
from fedquilt.methods.fedprox import FedProx
from fedquilt.training.averaging import WeightedAveraging
from fedquilt.training.local_training import LocalTraining
from fedquilt.training.method import Local


@pytest.fixture(autouse=True)
def only_the_pull(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WeightedAveraging, "loss", lambda self, local, batch: torch.zeros(()))


def _descent(mu: float, steps: int, lr: float) -> float:
    """Where f = 1.5 (w - 4)^2, with the gradient 3 (w - 4), and the pull to 1 lead from w = 1."""
    method = FedProx(mu=mu)

    def pull(local: Local) -> torch.Tensor:
        return method.loss(local, None)  # type: ignore[arg-type]

    received = {"weights": {"w": torch.tensor([1.0], dtype=torch.float64)}}
    weights, _, _ = train_one_weight(
        method, lambda w: 1.5 * (w - 4) ** 2, received, {}, steps=steps, lr=lr, extra=pull
    )
    return weights["w"].item()


@pytest.mark.parametrize(("mu", "expected"), [(0.0, 2.53), (0.1, 2.521), (1.0, 2.44)])
def test_two_steps_on_a_parabola(mu: float, expected: float) -> None:
    # With lr 0.1: w = 1 + 0.9 = 1.9, then w = 1.9 + 0.1 (6.3 - 0.9 mu) = 2.53 - 0.09 mu.
    assert _descent(mu, steps=2, lr=0.1) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("mu", [0.0, 0.1, 1.0, 9.0])
def test_the_first_step_does_not_know_of_the_pull(mu: float) -> None:
    assert _descent(mu, steps=1, lr=0.1) == pytest.approx(1.9, abs=1e-12)


@pytest.mark.parametrize(("mu", "expected"), [(9.0, 1.75), (97.0, 1.09), (897.0, 1.01)])
def test_a_strong_pull_holds_the_weights_near_the_received_ones(mu: float, expected: float) -> None:
    # At rest 3 (w - 4) + mu (w - 1) = 0: w = (12 + mu) / (3 + mu).
    assert _descent(mu, steps=300, lr=0.5 / (mu + 3)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("momentum", "limit"), [(0.0, 20.0), (0.5, 30.0)])
def test_a_pull_that_diverges_is_refused(momentum: float, limit: float) -> None:
    """On mu (w - 1)^2 / 2 alone, sgd with lr diverges from lr mu = 2 (1 + momentum)."""
    by_sgd = LocalTraining(optimizer="sgd", lr=0.1, momentum=momentum)
    weight = torch.nn.Parameter(torch.tensor([2.0], dtype=torch.float64))
    for mu, ends_far in ((0.99 * limit, False), (1.01 * limit, True)):
        weight.data.fill_(2.0)
        descent = torch.optim.SGD([weight], lr=0.1, momentum=momentum)
        for _ in range(1000):
            weight.grad = mu * (weight.data - 1)
            descent.step()
        assert (abs(weight.item() - 1) > 1) is ends_far
    assert FedProx(mu=0.99 * limit, training=by_sgd).mu == 0.99 * limit
    with pytest.raises(UserError, match=f"at least 0 and below {limit:g}, found"):
        FedProx(mu=limit, training=by_sgd)
    assert FedProx(mu=10 * limit).mu == 10 * limit  # Adam's steps have a length of their own
    with pytest.raises(UserError, match="found -1"):
        FedProx(mu=-1.0)


def test_the_gradient_at_the_anchor_is_zero_not_nan() -> None:
    weight = torch.tensor([2.0, -1.0], requires_grad=True)
    squared_distance([("w", weight)], {"w": weight.detach().clone()}).backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [0.0, 0.0]
