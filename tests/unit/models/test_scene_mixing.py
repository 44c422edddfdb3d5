from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, tensor

from fedquilt.core.tree import Weights
from fedquilt.models.scenes import mixed_matrices

A, B, C = (value * torch.ones(1, 2, 2) for value in (1.0, 4.0, 10.0))


def scenes(prototypes: list[list[float]], matrices: Tensor, used: list[float]) -> Weights:
    return {"prototypes": tensor(prototypes), "matrices": matrices, "used": tensor(used)}


def mixed(angle: float) -> float:
    """A mixed with B of another client, whose prototype is rotated by the angle."""
    rotated = [[2 * math.cos(angle), 2 * math.sin(angle)]]  # twice as long, same cosine
    both = {"a": scenes([[1.0, 0.0]], A, [1.0]), "b": scenes(rotated, B, [1.0])}
    found = mixed_matrices(both)["a"]
    assert bool((found == found[0, 0, 0]).all())
    return found[0, 0, 0].item()


def test_two_clients():
    assert mixed(0.0) == pytest.approx(2.5)  # cosine 1: the plain mean
    assert mixed(math.pi / 3) == pytest.approx(2.0)  # cosine 0.5: (1 + 0.5 * 4) / 1.5
    assert mixed(math.pi / 2) == pytest.approx(1.0)
    assert mixed(2.0) == 1.0  # a negative cosine: unchanged


def test_every_other_client_contributes_its_most_similar_scene():
    clients = {
        "a": scenes([[1.0, 0.0]], A, [1.0]),
        # the second is more similar: cosine 0.8
        "b": scenes([[0.0, 1.0], [0.8, 0.6]], torch.cat([C, B]), [1.0, 1.0]),
        "c": scenes([[-1.0, 0.0]], C, [1.0]),
    }
    found = mixed_matrices(clients)
    # a: (1 + 0.8 * 4) / 1.8 = 2.3333; c is opposite.
    torch.testing.assert_close(found["a"], 7 / 3 * torch.ones(1, 2, 2))
    # b's first scene is at a right angle to a's and c's; its second: (4 + 0.8 * 1) / 1.8.
    torch.testing.assert_close(found["b"], torch.cat([C, 8 / 3 * torch.ones(1, 2, 2)]))
    assert torch.equal(found["c"], C)


def test_the_own_matrix_has_the_largest_single_weight():
    """Each cosine is at most 1, also by rounding; one-hot matrices show the weights."""
    generator = torch.Generator().manual_seed(0)
    prototypes = torch.rand(1, 7, generator=generator).tolist()
    clients = {
        f"client {k}": scenes(prototypes, torch.eye(4)[k].reshape(1, 2, 2), [1.0]) for k in range(4)
    }
    for k, matrices in enumerate(mixed_matrices(clients).values()):
        shares = matrices.flatten()
        assert shares.sum().item() == pytest.approx(1.0)
        assert bool((shares <= shares[k] + 1e-7).all())


def test_empty_scenes_are_neither_changed_nor_used():
    clients = {
        "a": scenes([[1.0, 0.0], [0.9, 0.1]], torch.cat([A, 0 * A]), [1.0, 0.0]),
        "b": scenes([[1.0, 0.0], [0.0, 1.0]], torch.cat([0 * B, B]), [0.0, 1.0]),
    }
    found = mixed_matrices(clients)
    assert torch.equal(found["a"], clients["a"]["matrices"])
    assert torch.equal(found["b"], clients["b"]["matrices"])


def test_a_prototype_of_zeros_gives_no_nan():
    clients = {"a": scenes([[0.0, 0.0]], A, [1.0]), "b": scenes([[1.0, 0.0]], B, [1.0])}
    found = mixed_matrices(clients)
    assert torch.equal(found["a"], A)
    assert torch.equal(found["b"], B)


def test_a_single_client_keeps_its_matrices():
    assert torch.equal(mixed_matrices({"a": scenes([[1.0]], A, [1.0])})["a"], A)
    assert mixed_matrices({}) == {}
