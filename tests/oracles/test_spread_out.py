"""Hinge loss of positives, penalties of class rows, and minimising them on the sphere."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, tensor

from fedquilt.losses.spread_out import (
    correlation_penalty,
    nearest_penalty,
    positive_hinge,
    row_penalty,
)
from fedquilt.models.class_rows import (
    NUDGE,
    arrange_rows,
    minimize_on_sphere,
    scatter_rows,
    select_rows,
    separate_equal_rows,
)
from fedquilt.models.heads.sphere import on_sphere

HALF = tensor([[1.0, 0.0], [0.5, math.sqrt(0.75)]])  # two unit rows with a cosine of 1/2
APART = torch.zeros(2, 2)


def random_rows(classes: int, width: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return on_sphere(torch.randn(classes, width, generator=generator, dtype=torch.float64))


def cosines(rows: Tensor) -> Tensor:
    """Cosines of all pairs of different rows."""
    return (rows @ rows.T)[~torch.eye(len(rows), dtype=torch.bool)]


def test_hinge_of_the_card() -> None:
    scores = tensor([[0.5, 0.3], [0.9, 0.95]], requires_grad=True)
    positives = tensor([[True, False], [True, True]])
    # (0.9 - 0.5)^2 = 0.16, and 0 from 0.9 on; three positives.
    loss = positive_hinge(scores, positives, 0.9, torch.ones(2))
    assert loss.item() == pytest.approx(0.16 / 3)
    loss.backward()
    # -2 * 0.4 / 3 for the first; the 0.3 is not a positive.
    assert scores.grad is not None
    assert scores.grad.flatten().tolist() == pytest.approx([-0.8 / 3, 0.0, 0.0, 0.0], abs=1e-6)


def test_hinge_uses_class_weights_and_is_zero_without_positives() -> None:
    scores = tensor([[0.5, 0.5]])
    both = torch.ones(1, 2, dtype=torch.bool)
    # (3 * 0.16 + 0.16) / 2
    assert positive_hinge(scores, both, 0.9, tensor([3.0, 1.0])).item() == pytest.approx(0.32)
    assert positive_hinge(scores, ~both, 0.9, torch.ones(2)).item() == 0.0


def test_spread_out_penalty_of_the_card() -> None:
    # Distance 1/2: (1 - 1/2)^2 for both orders of the one pair.
    assert correlation_penalty(HALF, APART, 1.0).item() == pytest.approx(0.5)
    assert correlation_penalty(torch.eye(2), APART, 1.0).item() == 0.0
    assert correlation_penalty(-HALF[:1].repeat(2, 1), APART, 1.0).item() == pytest.approx(2.0)


def test_correlated_pairs_are_penalised_by_distance() -> None:
    # r = 1/4: 2 * (1/4 * 1/4 + 3/4 * 1/4) at distance 1/2; r = 1: 2 * 1/4.
    assert correlation_penalty(HALF, 0.25 * torch.ones(2, 2), 1.0).item() == pytest.approx(0.5)
    assert correlation_penalty(HALF, torch.ones(2, 2), 1.0).item() == pytest.approx(0.5)
    # r = 1/4 at distance 1: 2 * 1/4.
    assert correlation_penalty(torch.eye(2), 0.25 * torch.ones(2, 2), 1.0).item() == 0.5


def test_nearest_penalty_by_hand() -> None:
    rows = tensor([[1.0, 0.0], [0.6, 0.8], [-1.0, 0.0]])
    # Distances 0.4 (0 and 1), 2 (0 and 2), 1.6 (1 and 2). Nearest: 0.4, 0.4 and 1.6.
    assert nearest_penalty(rows, 1).item() == pytest.approx(-(0.16 + 0.16 + 2.56))
    # Two or more: all ordered pairs.
    all_pairs = -2 * (0.16 + 4.0 + 2.56)
    assert nearest_penalty(rows, 2).item() == pytest.approx(all_pairs)
    assert nearest_penalty(rows, 10).item() == pytest.approx(all_pairs)
    assert row_penalty(rows, torch.zeros(3, 3), 1.0, 1).item() == pytest.approx(-2.88)
    assert row_penalty(HALF, APART, 1.0, None).item() == pytest.approx(0.5)


def test_a_step_by_hand() -> None:
    # The gradient of 2 (cos)^2 is 4 cos times the other row: with a rate of 1/4, row 0 becomes
    # (1, 0) - 1/2 (1/2, 0.8660254) = (3/4, -0.4330127), of length 0.8660254.
    found = minimize_on_sphere(HALF, lambda rows: correlation_penalty(rows, APART, 1.0), 0.25, 1)
    assert found[0].tolist() == pytest.approx([0.8660254, -0.5], abs=1e-6)
    assert cosines(found).max().item() < 0.5


@pytest.mark.parametrize("seed", range(10))
def test_a_small_step_never_brings_two_rows_closer(seed: int) -> None:
    rows = random_rows(2, 5, seed)
    pushed = minimize_on_sphere(rows, lambda some: correlation_penalty(some, APART, 1.0), 0.05, 1)
    assert cosines(pushed).max() <= cosines(rows).max() + 1e-9
    further = minimize_on_sphere(rows, lambda some: nearest_penalty(some, 1), 0.05, 1)
    assert cosines(further).max() < cosines(rows).max()


def test_equal_rows_are_separated_first() -> None:
    rows = tensor([[0.6, 0.8], [0.6, 0.8], [1.0, 0.0]])
    apart = torch.zeros(3, 3)
    stuck = minimize_on_sphere(rows, lambda some: correlation_penalty(some, apart, 1.0), 0.05, 50)
    assert torch.equal(stuck[0], stuck[1])
    nudged = separate_equal_rows(rows, apart)
    assert not torch.equal(nudged[0], nudged[1])
    assert (nudged - rows).norm(dim=1).max() <= NUDGE
    assert torch.equal(nudged[2], rows[2])
    assert torch.equal(separate_equal_rows(rows, apart), nudged)  # the same noise at every call
    moved = arrange_rows(
        rows,
        torch.ones(3, dtype=torch.bool),
        apart,
        lambda some, correlation: correlation_penalty(some, correlation, 1.0),
        0.05,
        200,
    )
    assert cosines(moved).max().item() < 0.5


def test_fully_correlated_rows_may_be_equal() -> None:
    rows = tensor([[0.6, 0.8], [0.6, 0.8]])
    assert torch.equal(separate_equal_rows(rows, torch.ones(2, 2)), rows)


@pytest.mark.parametrize("classes", [3, 5])
def test_at_the_simplex_distance_rows_become_a_simplex(classes: int) -> None:
    rows = random_rows(classes, classes - 1)  # one feature fewer than classes is enough
    apart = torch.zeros(classes, classes)
    distance = 1 + 1 / (classes - 1)
    found = minimize_on_sphere(
        rows, lambda some: correlation_penalty(some, apart, distance), 1 / (4 * classes), 20_000
    )
    assert cosines(found).tolist() == pytest.approx(
        [-1 / (classes - 1)] * (classes * (classes - 1)), abs=2e-3
    )


def test_at_a_distance_of_one_no_angle_stays_below_90_degrees() -> None:
    apart = torch.zeros(6, 6)
    found = minimize_on_sphere(
        random_rows(6, 6), lambda s: correlation_penalty(s, apart, 1.0), 0.04, 5_000
    )
    assert cosines(found).max().item() < 1e-3


def test_a_fully_correlated_pair_becomes_equal_and_others_separate() -> None:
    correlation = torch.zeros(4, 4, dtype=torch.float64)
    correlation[0, 1] = correlation[1, 0] = 1.0
    correlation[2, 3] = correlation[3, 2] = 0.25
    found = minimize_on_sphere(
        random_rows(4, 8), lambda s: correlation_penalty(s, correlation, 1.0), 0.06, 800
    )
    gram = found @ found.T
    assert gram[0, 1].item() == pytest.approx(1.0, abs=0.01)  # converges slowly
    # d minimises d^2 / 4 + 3/4 (1 - d)^2 at 3/4.
    assert gram[2, 3].item() == pytest.approx(0.25, abs=1e-3)
    assert gram[:2, 2:].max().item() < 5e-3


def test_unseen_rows_are_left_unchanged_and_have_no_effect() -> None:
    rows = on_sphere(tensor([[1.0, 0.2], [0.9, 0.4], [0.8, 0.5]]))
    seen = tensor([True, True, False])

    def moved(start: Tensor) -> Tensor:
        return arrange_rows(
            start, seen, torch.zeros(3, 3), lambda s, t: correlation_penalty(s, t, 1.0), 0.1, 3
        )

    found = moved(rows)
    assert torch.equal(found[2], rows[2])
    other = torch.cat([rows[:2], -rows[2:]])
    assert torch.equal(moved(other)[:2], found[:2])
    assert not torch.equal(found[:2], rows[:2])
    assert torch.allclose(found.norm(dim=1), torch.ones(3))


def test_selected_rows_are_scattered_back() -> None:
    rows = tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    selected = select_rows(rows, tensor([True, False, True]))
    assert selected["rows"].tolist() == [[1.0, 2.0], [5.0, 6.0]]
    assert scatter_rows(**selected).tolist() == [[1.0, 2.0], [0.0, 0.0], [5.0, 6.0]]
    nothing = select_rows(rows, torch.zeros(3, dtype=torch.bool))
    assert scatter_rows(**nothing).tolist() == [[0.0, 0.0]] * 3
