"""The server's step: plain averaging, learning rate and momentum by hand."""

from __future__ import annotations

import math

import pytest
from torch import tensor

from fedquilt.core.errors import UserError
from fedquilt.core.tree import same_bits
from fedquilt.training.server_optimizer import ServerOptimizer


def test_plain_averaging_adds_the_mean_change():
    step = ServerOptimizer()
    assert step.init({"w": tensor([1.0])}) == {}
    new, velocity = step.apply({"w": tensor([1.0, 2.0])}, {"w": tensor([0.5, -1.0])}, {})
    assert same_bits(new, {"w": tensor([1.5, 1.0])})
    assert velocity == {}


def test_the_learning_rate_scales_the_change():
    new, _ = ServerOptimizer(lr=0.5).apply({"w": tensor([1.0])}, {"w": tensor([4.0])}, {})
    assert new["w"].tolist() == [3.0]


def test_momentum_by_hand():
    step = ServerOptimizer(lr=2.0, momentum=0.5)
    weights = {"w": tensor([0.0])}
    velocity = step.init(weights)
    assert same_bits(velocity, {"w": tensor([0.0])})
    seen = []
    for change in (1.0, 1.0, 0.0):
        weights, velocity = step.apply(weights, {"w": tensor([change])}, velocity)
        seen.append((velocity["w"].item(), weights["w"].item()))
    # velocity: 1, 1 + 0.5 = 1.5, 0 + 0.75; weights: 2, 2 + 3, 5 + 1.5
    assert seen == [(1.0, 2.0), (1.5, 5.0), (0.75, 6.5)]


def test_arguments_are_not_changed():
    step = ServerOptimizer(momentum=0.5)
    weights, change, velocity = ({"w": tensor([float(n)])} for n in (1, 2, 3))
    step.apply(weights, change, velocity)
    assert [tree["w"].item() for tree in (weights, change, velocity)] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    "settings",
    [
        {"lr": 0.0},
        {"lr": -1.0},
        {"lr": math.nan},
        {"lr": math.inf},
        {"momentum": 1.0},
        {"momentum": -0.1},
        {"momentum": math.nan},
    ],
)
def test_impossible_settings_are_refused(settings):
    (name, value), *_ = settings.items()
    with pytest.raises(UserError, match=f"lr > 0 and 0 <= momentum < 1.*{name} = {value}"):
        ServerOptimizer(**settings)
