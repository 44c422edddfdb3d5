"""Binary cross-entropy over annotated entries: masked, balanced, asymmetric; and reductions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fedquilt.core.errors import UserError


def elementwise_bce(
    logits: Tensor, targets: Tensor, positive_weight: Tensor | None = None
) -> Tensor:
    """``w * y * softplus(-z) + (1 - y) * softplus(z)`` per entry."""
    return F.binary_cross_entropy_with_logits(
        logits, targets, reduction="none", pos_weight=positive_weight
    )


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over ``mask``, 0 if the mask is empty; NaN outside the mask has no effect."""
    return torch.where(mask, values, 0.0).sum() / mask.sum().clamp(min=1)


def mean_over_all(values: Tensor, mask: Tensor) -> Tensor:
    """Sum over ``mask`` divided by the number of all entries, in the mask or not."""
    return torch.where(mask, values, 0.0).mean()


def mean_of_image_sums(values: Tensor, mask: Tensor) -> Tensor:
    """Sum over each image's entries in ``mask``, both (B, C); then the mean over all images."""
    return torch.where(mask, values, 0.0).sum(1).mean()


def mean_of_image_means(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over each image's entries in ``mask``, both (B, C); then the mean over all images."""
    sums = torch.where(mask, values, 0.0).sum(1)
    return (sums / mask.sum(1).clamp(min=1)).mean()


def masked_bce(
    logits: Tensor, labels: Tensor, known: Tensor, positive_weight: Tensor | None = None
) -> Tensor:
    """Mean binary cross-entropy over the known entries."""
    targets = torch.where(known, labels, 0.0)
    return masked_mean(elementwise_bce(logits, targets, positive_weight), known)


def labelled_cross_entropy(logits: Tensor, labels: Tensor, known: Tensor) -> Tensor:
    """Cross-entropy of images of one class each, mean over those whose class is annotated.

    ``logits`` are the log-odds of softmax probabilities, as the softmax head returns them.
    """
    positive = known & (labels == 1)
    return masked_mean(-F.logsigmoid(logits), positive)


def balance_weights(
    positives: Tensor, annotated: Tensor, cap: float, *, mean: bool = False
) -> Tensor:
    """Return the weights of negatives and positives, (2, C); 1 where a class has none of a kind.

    The weight is half of the class's annotated labels divided by its negatives or positives, at
    most ``cap``; so it is 1 for a class that is present in half of its annotated images.

    Args:
        mean: give every class the mean of 100,000 divided by negatives or positives, as in the
            public code of the site-aware method; there is no cap.
    """
    kinds = torch.stack([annotated - positives, positives])
    if mean:
        weights = torch.where(kinds > 0, 1e5 / kinds.clamp(min=1), 0.0).sum(1, keepdim=True)
        found = (kinds > 0).sum(1, keepdim=True).clamp(min=1)
        return (weights / found).to(torch.float32).repeat(1, kinds.shape[1])
    weights = annotated / (2 * kinds.clamp(min=1))
    return torch.where(kinds > 0, weights.clamp(max=cap), 1.0).to(torch.float32)


def balanced_bce(
    logits: Tensor, labels: Tensor, known: Tensor, balance: Tensor, positive_weight: Tensor
) -> Tensor:
    """Mean over known entries of the cross-entropy times ``balance``, see balance_weights."""
    targets = torch.where(known, labels, 0.0)
    entries = elementwise_bce(logits, targets, positive_weight)
    return masked_mean(torch.where(targets == 1, balance[1], balance[0]) * entries, known)


def require_focus(negative: float, positive: float) -> None:
    """Raise UserError if the gradient of :func:`asymmetric_loss` could be infinite."""
    if any(0 != exponent < 1 for exponent in (negative, positive)):
        settings = "method.negative_focus and method.positive_focus"
        raise UserError(f"{settings} must be 0 or at least 1, found {negative} and {positive}")


def asymmetric_loss(
    logits: Tensor,
    labels: Tensor,
    known: Tensor,
    positive_weight: Tensor | None = None,
    focus: tuple[float, float] = (4.0, 1.0),
    margin: float = 0.05,
) -> Tensor:
    """Asymmetric loss (ASL), summed over the known entries as in its authors' code.

    A positive of probability p costs (1 - p)^g * -log(p). A negative's p is first lowered by the
    margin, at most to 0, and then costs p^g * -log(1 - p). Gradients flow through the factors too.

    Args:
        focus: the exponents g of negatives and of positives. Use 0, or 1 and above: in between,
            the gradient at p = 0 is infinite.
    """
    negative_focus, positive_focus = focus
    scores = logits.to(labels.dtype)  # bfloat16 is too coarse for a sum of logarithms
    absent = torch.sigmoid(-scores)
    positive = absent**positive_focus * F.logsigmoid(scores)
    if positive_weight is not None:
        positive = positive_weight * positive
    shifted = (absent + margin).clamp(torch.finfo(absent.dtype).tiny, 1.0)
    negative = (1 - shifted) ** negative_focus * shifted.log()
    return -torch.where(known, torch.where(labels == 1, positive, negative), 0.0).sum()
