"""Binary cross-entropy over the annotated entries of a label matrix, from logits."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def elementwise_bce(
    logits: Tensor, targets: Tensor, positive_weight: Tensor | None = None
) -> Tensor:
    """``w * y * softplus(-z) + (1 - y) * softplus(z)`` per entry."""
    return F.binary_cross_entropy_with_logits(
        logits, targets, reduction="none", pos_weight=positive_weight
    )


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """The mean over ``mask``, and 0 where the mask is empty; what is outside cannot matter."""
    return torch.where(mask, values, 0.0).sum() / mask.sum().clamp(min=1)


def masked_bce(
    logits: Tensor, labels: Tensor, known: Tensor, positive_weight: Tensor | None = None
) -> Tensor:
    """Mean binary cross-entropy over the known entries."""
    targets = torch.where(known, labels, 0.0)
    return masked_mean(elementwise_bce(logits, targets, positive_weight), known)
