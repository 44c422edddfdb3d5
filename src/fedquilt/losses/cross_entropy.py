"""Cross-entropy over annotated entries: plain, balanced, asymmetric, and reductions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def asymmetric_loss(
    logits: Tensor,
    labels: Tensor,
    known: Tensor,
    positive_weight: Tensor | None = None,
    focus: tuple[float, float] = (4.0, 1.0),
    margin: float = 0.05,
) -> Tensor:
    """Summed over the known entries, as its authors have it.

    A positive of probability p costs (1 - p)^g * -log(p). A negative's p is lowered by the
    margin, at most to 0, and then costs p^g * -log(1 - p). ``focus`` is g, of negatives and of
    positives: 0, or 1 and more, as between them its slope at p = 0 is infinite. Gradients pass
    through the factors too.
    """
    of_negatives, of_positives = focus
    scores = logits.to(labels.dtype)  # a sum of logarithms is no place for bfloat16
    absent = torch.sigmoid(-scores)
    positive = absent**of_positives * F.logsigmoid(scores)
    if positive_weight is not None:
        positive = positive_weight * positive
    shifted = (absent + margin).clamp(torch.finfo(absent.dtype).tiny, 1.0)
    negative = (1 - shifted) ** of_negatives * shifted.log()
    return -torch.where(known, torch.where(labels == 1, positive, negative), 0.0).sum()


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


def mean_of_image_sums(values: Tensor, mask: Tensor) -> Tensor:
    """The sum over an image's entries in ``mask``, both (B, C); the mean over all images."""
    return torch.where(mask, values, 0.0).sum(1).mean()


def mean_of_image_means(values: Tensor, mask: Tensor) -> Tensor:
    """Likewise with the mean over an image's entries: each image counts alike."""
    sums = torch.where(mask, values, 0.0).sum(1)
    return (sums / mask.sum(1).clamp(min=1)).mean()
