"""Contrastive losses: MOON's contrast, FedNCA-ML's compaction and rejection."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor


def compaction(scores: Tensor) -> Tensor:
    """Per image and class, (B, C): -log of the own class's share in a softmax of scores (B, C, C).

    The second axis is the class that a feature was found for, the third the direction it is
    compared with.
    """
    return -torch.log_softmax(scores, -1).diagonal(dim1=1, dim2=2)


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
