"""Simple statistics of an image's pixels, in which images of another kind differ."""

from __future__ import annotations

import torch
from torch import Tensor

SMALLEST = 0.5 / 255  # half a grey level: keeps logarithms finite where nothing varies


def pixel_statistics(images: Tensor) -> Tensor:
    """(N, S) float64 for uint8 images (N, channels, height, width).

    Mean and log deviation of each channel, log steps between neighbours along each axis and, with
    several channels, the log of how far they differ from grey.
    """
    pixels = images.to(torch.float32) / 255
    parts = [pixels.mean((2, 3)), (pixels.std((2, 3), correction=0) + SMALLEST).log()]
    varying = [pixels.diff(dim=axis).abs().flatten(1) for axis in (2, 3)]
    if images.shape[1] > 1:
        varying.append((pixels - pixels.mean(1, keepdim=True)).abs().flatten(1))
    # An image of one row has no neighbours: the mean over nothing is 0.
    means = [each.sum(1) / max(each.shape[1], 1) for each in varying]
    parts.append((torch.stack(means, 1) + SMALLEST).log())
    return torch.cat(parts, 1).to(torch.float64)
