"""Warps and flips: by hand, and against grid_sample."""

from __future__ import annotations

import math

import pytest
import torch
from support.photographs import photographs
from torch.nn import functional as F

from fedquilt.data.augmentation.geometry import mirror, warp


def still(count: int) -> dict[str, torch.Tensor]:
    """Arguments of ``warp`` that change nothing."""
    return {
        "degrees": torch.zeros(count),
        "shift": torch.zeros(count, 2),
        "scale": torch.ones(count),
        "mirrored": torch.zeros(count, 2, dtype=torch.bool),
    }


def test_mirror_only_the_chosen():
    pixels = torch.arange(8.0).view(2, 1, 2, 2)
    result = mirror(pixels, torch.tensor([False, True]), 3)
    assert result.flatten().tolist() == [0, 1, 2, 3, 5, 4, 7, 6]


def test_an_identity_warp_returns_the_image():
    pixels = photographs(3, 2, 7, 11) / 255
    assert torch.allclose(warp(pixels, **still(3)), pixels, atol=1e-5)


def test_warp_turns_counter_clockwise_also_where_the_canvas_is_not_square():
    # One bright pixel 3 px right of the centre of 9 x 13 goes 3 px above it after 90 degrees.
    pixels = torch.zeros(1, 1, 9, 13)
    pixels[0, 0, 4, 9] = 1
    result = warp(pixels, **still(1) | {"degrees": torch.tensor([90.0])})
    assert result[0, 0, 1, 6].item() == pytest.approx(1, abs=1e-4)
    assert result.sum().item() == pytest.approx(1, abs=1e-4)


def test_warp_shifts_right_and_down_by_shares_of_the_canvas():
    # 0.2 of 10 px is 2 px right, -0.1 of 20 px is 2 px up.
    pixels = torch.zeros(1, 1, 20, 10)
    pixels[0, 0, 8, 4] = 1
    result = warp(pixels, **still(1) | {"shift": torch.tensor([[0.2, -0.1]])})
    assert result[0, 0, 6, 6].item() == pytest.approx(1, abs=1e-4)


def test_warp_enlarges_about_the_centre():
    # Twice as large: what lay 2 px from the centre of 11 lies 4 px from it.
    pixels = torch.zeros(1, 1, 11, 11)
    pixels[0, 0, 5, 7] = 1
    result = warp(pixels, **still(1) | {"scale": torch.tensor([2.0])})
    assert result[0, 0, 5, 9].item() == pytest.approx(1, abs=1e-4)


def test_warp_mirrors_before_it_shifts():
    pixels = torch.zeros(1, 1, 10, 10)
    pixels[0, 0, 3, 1] = 1
    mirrored = torch.tensor([[True, True]])  # to row 6, column 8, then 1 px left
    result = warp(pixels, **still(1) | {"mirrored": mirrored, "shift": torch.tensor([[-0.1, 0]])})
    assert result[0, 0, 6, 7].item() == pytest.approx(1, abs=1e-4)


def test_warp_agrees_with_affine_grid():
    pixels = photographs(2, 1, 8, 12) / 255
    degrees = torch.tensor([10.0, -25.0])
    shift = torch.tensor([[0.1, 0.05], [0.0, -0.2]])
    result = warp(pixels, **still(2) | {"degrees": degrees, "shift": shift})
    for row in range(2):
        cos, sin = (f(math.radians(degrees[row])) for f in (math.cos, math.sin))
        linear = torch.tensor([[cos, -sin * 8 / 12], [sin * 12 / 8, cos]])
        theta = torch.cat((linear, linear @ (-2 * shift[row])[:, None]), 1)[None]
        grid = F.affine_grid(theta, [1, 1, 8, 12], align_corners=False)
        expected = F.grid_sample(pixels[row : row + 1], grid, align_corners=False)
        assert torch.allclose(result[row], expected[0], atol=1e-5)
