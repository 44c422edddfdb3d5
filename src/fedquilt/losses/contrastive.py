"""Contrast between models: features shall be near one model's and far from others'."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor


def model_contrast(
    features: Tensor, near: Tensor, far: Sequence[Tensor], temperature: float
) -> Tensor:
    """Mean over images of -log of the share that ``near`` has in a softmax of cosines.

    All are (B, d): features of the same images by different models. With nothing to be far from
    the loss is 0.
    """
    cosines = [F.cosine_similarity(features, other, dim=1, eps=1e-8) for other in (near, *far)]
    scores = torch.stack(cosines, 1) / temperature
    return -torch.log_softmax(scores, 1)[:, 0].mean()
