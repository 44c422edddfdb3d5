"""A teacher follows a network at a distance."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fedquilt.core.tree import clone
from fedquilt.models.teacher import follow


def test_it_nears_a_network_that_stands_still() -> None:
    network = nn.Linear(1, 1, bias=False, dtype=torch.float64)
    with torch.no_grad():
        network.weight.fill_(5.0)
    teacher = {"weight": torch.ones(1, 1, dtype=torch.float64)}
    for _ in range(200):
        teacher = follow(teacher, network, 0.999)
    # s + 0.999^200 (t0 - s), where the power is 0.8186.
    assert teacher["weight"].item() == pytest.approx(5 - 4 * 0.8186488, abs=1e-6)


def test_copied_entries_are_the_networks_own() -> None:
    network = nn.BatchNorm1d(1)
    network.running_mean.fill_(8.0)
    teacher = {name: torch.zeros(1) for name in ("weight", "running_mean")}
    mixed = follow(clone(teacher), network, 0.75)
    assert (mixed["weight"].item(), mixed["running_mean"].item()) == (0.25, 2.0)
    copied = follow(clone(teacher), network, 0.75, ("running_mean",))
    assert (copied["weight"].item(), copied["running_mean"].item()) == (0.25, 8.0)
    network.running_mean.fill_(9.0)
    assert copied["running_mean"].item() == 8.0


@pytest.mark.parametrize("decay", [0.75, torch.tensor(0.75)])
def test_it_is_written_over_and_a_decay_may_lie_on_a_device(decay: float | Tensor) -> None:
    network = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        network.weight.fill_(8.0)
    teacher = {"weight": torch.full((1, 1), 4.0)}
    place = teacher["weight"]
    assert follow(teacher, network, decay)["weight"] is place
    assert place.item() == 5.0  # 0.75 * 4 + 0.25 * 8
    assert network.weight.item() == 8.0
