"""Weights that let present and absent count alike in each class of a client."""

from __future__ import annotations

import torch
from torch import Tensor

from fedquilt.losses.binary import elementwise_bce, masked_mean


def balance_weights(positives: Tensor, annotated: Tensor, cap: float) -> Tensor:
    """(2, C): how much an absent and a present label count; 1 where there is none to weigh.

    Half of the class's annotated labels over those of the kind, so 1 for a class that is present
    in half of them; never more than ``cap``.
    """
    kinds = torch.stack([annotated - positives, positives])
    weights = annotated / (2 * kinds.clamp(min=1))
    return torch.where(kinds > 0, weights.clamp(max=cap), 1.0).to(torch.float32)


def balanced_bce(
    logits: Tensor, labels: Tensor, known: Tensor, balance: Tensor, positive_weight: Tensor
) -> Tensor:
    """The mean over known entries of the weighted binary cross-entropy."""
    targets = torch.where(known, labels, 0.0)
    entries = elementwise_bce(logits, targets, positive_weight)
    return masked_mean(torch.where(targets == 1, balance[1], balance[0]) * entries, known)
