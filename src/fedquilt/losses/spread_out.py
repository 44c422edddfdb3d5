"""Losses of FedAwS and FedALC: hinge loss of positives, and penalties that spread class rows.

Rows lie on the unit sphere; their distance is 1 - cosine.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedquilt.losses.cross_entropy import masked_mean


def positive_hinge(scores: Tensor, positives: Tensor, margin: float, weight: Tensor) -> Tensor:
    """Mean of weight * max(0, margin - score)^2 over positives; other entries have no effect."""
    return masked_mean(weight * (margin - scores).clamp(min=0).square(), positives)


def row_penalty(rows: Tensor, correlation: Tensor, distance: float, nearest: int | None) -> Tensor:
    """Penalty over all pairs of rows, or over each row's ``nearest`` ones if given."""
    if nearest is None:
        return correlation_penalty(rows, correlation, distance)
    return nearest_penalty(rows, nearest)


def correlation_penalty(rows: Tensor, correlation: Tensor, distance: float) -> Tensor:
    """Sum over ordered pairs of r d^2 + (1 - r) max(0, distance - d)^2; r, (C, C), correlations.

    Without correlation it is the spread-out penalty: rows nearer than ``distance`` are pushed
    apart.
    """
    d = 1 - rows @ rows.T
    terms = correlation * d.square() + (1 - correlation) * (distance - d).clamp(min=0).square()
    return _off_diagonal(terms).sum()


def nearest_penalty(rows: Tensor, count: int) -> Tensor:
    """Minus the sum of squared distances from each row to its ``count`` nearest rows."""
    d = 1 - rows @ rows.T
    diagonal = torch.eye(len(rows), dtype=torch.bool, device=rows.device)
    others = d.masked_fill(diagonal, torch.inf)
    nearest, _ = others.topk(min(count, len(rows) - 1), largest=False)
    return -nearest.square().sum()


def _off_diagonal(terms: Tensor) -> Tensor:
    return terms - torch.diag(terms.diagonal())
