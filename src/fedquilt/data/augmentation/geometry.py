"""Rotate, shift, scale and mirror a batch, with separate parameters per sample."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F


def mirror(pixels: Tensor, chosen: Tensor, axis: int) -> Tensor:
    """Mirror the samples where ``chosen``, (B,) bool; the others keep their exact values."""
    return torch.where(chosen[:, None, None, None], pixels.flip(axis), pixels)


def warp(pixels: Tensor, degrees: Tensor, shift: Tensor, scale: Tensor, mirrored: Tensor) -> Tensor:
    """Apply one affine map per sample in a single bilinear resampling; outside the image is 0.

    Args:
        pixels: (B, channels, height, width).
        degrees: (B,) counter-clockwise rotation.
        shift: (B, 2) translation right and down, as a share of width and height.
        scale: (B,) above 1 enlarges the image.
        mirrored: (B, 2) bool, left-right and top-bottom, applied before everything else.
    """
    height, width = pixels.shape[2:]
    radians = degrees * (math.pi / 180)
    cos, sin = radians.cos(), radians.sin()
    # Normalised coordinates run from -1 to 1 on both axes, so the rotation of an image that is not
    # square needs the aspect ratio.
    turn = torch.stack((cos, sin * (-height / width), sin * (width / height), cos), 1)
    stretch = (1 - 2 * mirrored.to(pixels.dtype)) / scale[:, None]
    origin = turn.view(-1, 2, 2) * stretch[:, :, None]  # where an output pixel comes from
    return resample(pixels, origin, origin @ (-2 * shift)[:, :, None])


def resample(pixels: Tensor, linear: Tensor, offset: Tensor) -> Tensor:
    """Sample the output pixel at x from linear @ x + offset, bilinearly; outside the image is 0.

    ``linear`` is (B, 2, 2) and ``offset`` (B, 2, 1), in coordinates from -1 to 1, right and down.
    """
    grid = _grid(linear, offset, pixels.shape[2], pixels.shape[3])
    return F.grid_sample(pixels, grid, align_corners=False)


def _grid(linear: Tensor, offset: Tensor, height: int, width: int) -> Tensor:
    """The grid of ``torch.nn.functional.affine_grid``, ten times faster on a CPU.

    One plane per coordinate, each the sum of a row and a column, instead of a product per pixel.
    """
    across = torch.arange(1 - width, width, 2, device=linear.device) / width
    down = torch.arange(1 - height, height, 2, device=linear.device) / height
    rows = torch.addcmul(offset, linear[:, :, 1:], down)  # (B, 2, height)
    planes = torch.addcmul(rows[..., None], linear[:, :, :1, None], across)
    return planes.permute(0, 2, 3, 1)  # (B, height, width, 2)
