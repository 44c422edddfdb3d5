"""Bounds and gradients of the entropy loss of scenes."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, tensor

from fedquilt.losses.scene_entropy import scene_entropy

SURE = 200.0  # the other scenes get probability 0, exactly


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        (SURE * torch.eye(4), 0.0),  # each image certain of another scene
        (torch.zeros(8, 4), math.log(4)),  # all uncertain: log 4 of the images, 0 of the batch
        (SURE * torch.eye(4)[:1].expand(8, 4), math.log(4)),  # all certain of one: 0 and log 4
        # Two certain of two of four scenes: 0 of the images, log 4 - log 2 of the batch.
        (SURE * torch.eye(4)[:2], math.log(2)),
    ],
)
def test_bounds(scores: Tensor, expected: float):
    assert scene_entropy(scores).item() == pytest.approx(expected, abs=1e-6)
    assert math.log(4) == pytest.approx(1.3863, abs=1e-4)


def test_gradients_are_finite_if_a_scene_is_never_used():
    scores = tensor([[500.0, 0.0, -500.0]], requires_grad=True)
    scene_entropy(scores).backward()
    assert bool(scores.grad.isfinite().all())


def test_it_pulls_an_undecided_image_to_its_nearest_scene():
    scores = tensor([[1.0, 0.0], [0.0, 1.0]], requires_grad=True)
    scene_entropy(scores).backward()
    assert scores.grad[0, 0] < 0 < scores.grad[0, 1]
