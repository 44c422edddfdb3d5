"""Averages over images of what their marked entries say; an image without one says 0."""

from __future__ import annotations

import torch
from torch import Tensor


def mean_of_image_sums(values: Tensor, mask: Tensor) -> Tensor:
    """The sum over an image's entries in ``mask``, both (B, C); the mean over all images."""
    return torch.where(mask, values, 0.0).sum(1).mean()


def mean_of_image_means(values: Tensor, mask: Tensor) -> Tensor:
    """Likewise with the mean over an image's entries: each image counts alike."""
    sums = torch.where(mask, values, 0.0).sum(1)
    return (sums / mask.sum(1).clamp(min=1)).mean()
