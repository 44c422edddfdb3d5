"""Settings of local training: what is refused, and the schedule of the learning rate."""

from __future__ import annotations

import math

import pytest

from fedquilt.core.errors import UserError
from fedquilt.training.local_training import LocalTraining


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"epochs": 0}, "training.epochs must be positive, found 0"),
        ({"batch_size": -1}, "training.batch_size must be positive, found -1"),
        ({"lr": 0.0}, "training.lr must be positive, found 0.0"),
        ({"steps": 0}, "training.steps must be positive or left out, found 0"),
        ({"weight_decay": -0.1}, "training.weight_decay must be >= 0, found -0.1"),
        (
            {"optimizer": "sgd", "decay": "decoupled", "weight_decay": 0.1},
            "'decoupled' is for adam; sgd has coupled decay only",
        ),
    ],
)
def test_impossible_settings_are_refused(settings, complaint):
    with pytest.raises(UserError, match=complaint):
        LocalTraining(**settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"clip_norm": -1.0},  # would turn every gradient round
        {"clip_norm": 0.0},  # would train nothing
        {"clip_norm": math.nan},
        {"betas": (0.9, 1.0)},
        {"betas": (-0.1, 0.999)},
        {"momentum": -0.5, "optimizer": "sgd"},
        {"momentum": 1.5, "optimizer": "sgd"},
        {"lr": math.nan},
        {"lr": math.inf},
        {"weight_decay": math.nan},
    ],
)
def test_numbers_that_cannot_train_are_refused(settings):
    name = next(iter(settings))
    with pytest.raises(UserError, match=f"training.{name}"):
        LocalTraining(**settings)


def test_sgd_without_decay_may_leave_the_kind_of_decay_alone():
    LocalTraining(optimizer="sgd", decay="decoupled")


def test_a_constant_rate_stays():
    training = LocalTraining(lr=0.3)
    assert [training.lr_at(round_, 10) for round_ in (0, 5, 9)] == [0.3, 0.3, 0.3]


def test_a_cosine_rate_falls_by_rounds():
    training = LocalTraining(lr=0.4, schedule="cosine")
    # 0.4 * (1 + cos(pi * t / 4)) / 2 for t = 0, 1, 2, 3; never 0 in a round that is run.
    half_root = math.sqrt(0.5)
    expected = [0.4, 0.2 * (1 + half_root), 0.2, 0.2 * (1 - half_root)]
    assert [training.lr_at(round_, 4) for round_ in range(4)] == pytest.approx(expected)


def test_a_rate_in_steps_falls_every_few_rounds():
    training = LocalTraining(lr=0.1, schedule="steps", lr_factor=0.5, lr_rounds=3)
    rates = [training.lr_at(index, 7) for index in range(7)]
    assert rates == pytest.approx([0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.025])


@pytest.mark.parametrize("name", ["backbone_lr", "lr_factor", "lr_rounds"])
def test_rates_and_steps_of_zero_are_refused(name: str):
    with pytest.raises(UserError, match=f"training.{name} must be positive, found 0"):
        LocalTraining(**{name: 0})
