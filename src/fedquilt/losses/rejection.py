"""Rejection: what a class finds where it is absent must not look like any class.

All scores are (B, C, C): of the feature found for one class, against the direction of another.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def rejection(scores: Tensor, threshold: float) -> Tensor:
    """Per image and class, (B, C): the mean over other classes of -log(1 - sigmoid(score)).

    Only scores whose probability is above the threshold add to it. Nor does the class's own: that
    is the classification loss's.
    """
    count = scores.shape[-1]
    others = ~torch.eye(count, dtype=torch.bool, device=scores.device)
    counted = others & (torch.sigmoid(scores.detach()) > threshold)
    return torch.where(counted, F.softplus(scores), 0.0).sum(-1) / max(count - 1, 1)


def hinge_rejection(scores: Tensor, threshold: float) -> Tensor:
    """Per image and class, (B, C): how far the likeliest class, own or other, exceeds."""
    return F.relu(torch.sigmoid(scores.amax(-1)) - threshold)


def most_confident(scores: Tensor, candidates: Tensor, count: Tensor) -> Tensor:
    """The ``count`` of all candidates, (B, C) bool, whose highest score is highest; or all."""
    highest = torch.where(candidates, scores.detach().amax(-1), -math.inf).flatten()
    rank = highest.argsort(descending=True, stable=True).argsort()
    return candidates & (rank < count).reshape(candidates.shape)
