"""Contrastive losses: MOON's model contrast, and FedNCA-ML's compaction and rejection."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fedquilt.losses.cross_entropy import mean_of_image_means, mean_of_image_sums

RejectionForm = Literal["log", "hinge", "hinge-top"]


def model_contrast(
    features: Tensor, positive: Tensor, negatives: Sequence[Tensor], temperature: float
) -> Tensor:
    """MOON: mean over images of -log softmax of the cosine with ``positive``.

    All tensors are (B, d): features of the same images from different models. Without negatives
    the loss is 0.
    """
    cosines = [
        F.cosine_similarity(features, other, dim=1, eps=1e-8) for other in (positive, *negatives)
    ]
    scores = torch.stack(cosines, 1) / temperature
    return -torch.log_softmax(scores, 1)[:, 0].mean()


def compaction(scores: Tensor) -> Tensor:
    """FedNCA-ML: -log softmax of the own class's score, (B, C), from scores (B, C, C).

    The second axis is the class of the feature, the third the class direction it is compared with.
    """
    return -torch.log_softmax(scores, -1).diagonal(dim1=1, dim2=2)


def rejection(scores: Tensor, threshold: float) -> Tensor:
    """FedNCA-ML: the mean over other classes of -log(1 - sigmoid(score)), (B, C).

    Only scores with a probability above the threshold contribute. A feature's own class is left
    to the classification loss.
    """
    count = scores.shape[-1]
    others = ~torch.eye(count, dtype=torch.bool, device=scores.device)
    counted = others & (torch.sigmoid(scores.detach()) > threshold)
    return torch.where(counted, F.softplus(scores), 0.0).sum(-1) / max(count - 1, 1)


def hinge_rejection(scores: Tensor, threshold: float) -> Tensor:
    """Return how far the highest probability, of any class, exceeds the threshold, (B, C)."""
    return F.relu(torch.sigmoid(scores.amax(-1)) - threshold)


def most_confident(scores: Tensor, candidates: Tensor, count: Tensor) -> Tensor:
    """Mask the ``count`` candidates, (B, C) bool, with the highest maximum score.

    All candidates are kept if there are fewer than ``count``.
    """
    highest = torch.where(candidates, scores.detach().amax(-1), -math.inf).flatten()
    rank = highest.argsort(descending=True, stable=True).argsort()
    return candidates & (rank < count).reshape(candidates.shape)


def rejection_loss(
    form: RejectionForm, scores: Tensor, positives: Tensor, negatives: Tensor, threshold: float
) -> Tensor:
    """FedNCA-ML's rejection of the features of negatives; both masks are (B, C) bool.

    ``log`` is the paper's form, a mean over an image's negatives. ``hinge`` is a sum over them;
    ``hinge-top``, the authors' code, keeps only as many negatives as the batch has positives.
    """
    if form == "log":
        return mean_of_image_means(rejection(scores, threshold), negatives)
    if form == "hinge-top":
        negatives = most_confident(scores, negatives, positives.sum())
    return mean_of_image_sums(hinge_rejection(scores, threshold), negatives)
