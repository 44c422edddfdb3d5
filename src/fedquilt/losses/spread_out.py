"""Scores of positives, and how class rows lie on the unit sphere; the distance is 1 - cosine."""

from __future__ import annotations

import torch
from torch import Tensor

from fedquilt.losses.cross_entropy import masked_mean


def positive_hinge(scores: Tensor, positives: Tensor, margin: float, weight: Tensor) -> Tensor:
    """Mean of weight * max(0, margin - score)^2 over positives; nothing else has a say."""
    return masked_mean(weight * (margin - scores).clamp(min=0).square(), positives)


def row_penalty(rows: Tensor, together: Tensor, distance: float, nearest: int | None) -> Tensor:
    """What rows pay for where they lie: by all pairs, or by each row's nearest ones."""
    if nearest is None:
        return correlation_penalty(rows, together, distance)
    return nearest_penalty(rows, nearest)


def correlation_penalty(rows: Tensor, together: Tensor, distance: float) -> Tensor:
    """Over ordered pairs: r d^2 + (1 - r) max(0, distance - d)^2, where r is ``together``, (C, C).

    Without any correlation it is the spread-out penalty: pairs nearer than ``distance`` part.
    """
    d = 1 - rows @ rows.T
    terms = together * d.square() + (1 - together) * (distance - d).clamp(min=0).square()
    return _without_itself(terms).sum()


def nearest_penalty(rows: Tensor, count: int) -> Tensor:
    """Minus the squared distances of every row to its ``count`` nearest ones."""
    d = 1 - rows @ rows.T
    itself = torch.eye(len(rows), dtype=torch.bool, device=rows.device)
    others = d.masked_fill(itself, torch.inf)
    nearest, _ = others.topk(min(count, len(rows) - 1), largest=False)
    return -nearest.square().sum()


def _without_itself(terms: Tensor) -> Tensor:
    return terms - torch.diag(terms.diagonal())
