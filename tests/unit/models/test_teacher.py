"""EMA updates of a mean teacher."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fedquilt.core.tree import clone
from fedquilt.models.teacher import ema_update


def test_it_converges_to_a_constant_network() -> None:
    network = nn.Linear(1, 1, bias=False, dtype=torch.float64)
    with torch.no_grad():
        network.weight.fill_(5.0)
    teacher = {"weight": torch.ones(1, 1, dtype=torch.float64)}
    for _ in range(200):
        teacher = ema_update(teacher, network, 0.999)
    # s + 0.999^200 (t0 - s), where the power is 0.8186.
    assert teacher["weight"].item() == pytest.approx(5 - 4 * 0.8186488, abs=1e-6)


def test_copied_entries_are_the_networks() -> None:
    network = nn.BatchNorm1d(1)
    network.running_mean.fill_(8.0)
    teacher = {name: torch.zeros(1) for name in ("weight", "running_mean")}
    averaged = ema_update(clone(teacher), network, 0.75)
    assert (averaged["weight"].item(), averaged["running_mean"].item()) == (0.25, 2.0)
    copied = ema_update(clone(teacher), network, 0.75, ("running_mean",))
    assert (copied["weight"].item(), copied["running_mean"].item()) == (0.25, 8.0)
    network.running_mean.fill_(9.0)
    assert copied["running_mean"].item() == 8.0


@pytest.mark.parametrize("decay", [0.75, torch.tensor(0.75)])
def test_it_is_updated_in_place_and_the_decay_may_be_a_tensor(decay: float | Tensor) -> None:
    network = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        network.weight.fill_(8.0)
    teacher = {"weight": torch.full((1, 1), 4.0)}
    tensor = teacher["weight"]
    assert ema_update(teacher, network, decay)["weight"] is tensor
    assert tensor.item() == 5.0  # 0.75 * 4 + 0.25 * 8
    assert network.weight.item() == 8.0
