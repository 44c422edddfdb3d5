"""Positive-unlabelled risks, given the class prior among unlabelled images."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

EPSILON = 1e-6  # avoids the logarithm of 0


def nonnegative_risk(
    logits: Tensor, positive: Tensor, unlabelled: Tensor, prior: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the non-negative risk per class, and whether the class has a positive in the batch.

    Unlabelled images are treated as negatives; the expected loss of the positives among them is
    subtracted, and the difference is clamped at 0. A class without a positive in the batch has
    risk 0.
    """
    as_positive = _column_mean(F.softplus(-logits), positive)
    as_negative = _column_mean(F.softplus(logits), unlabelled)
    hidden = prior * _column_mean(F.softplus(logits), positive)
    risk = prior * as_positive + (as_negative - hidden).clamp(min=0)
    has_positive = positive.any(0)
    return torch.where(has_positive, risk, torch.zeros_like(risk)), has_positive


def softmax_risk(
    logits: Tensor, positive: Tensor, owned: Tensor, prior: Tensor, weight: float
) -> Tensor:
    """Return the risk for images of one class each; the client has positives of ``owned`` classes.

    Cross-entropy on labelled images, plus ``weight`` times the loss of treating unlabelled images
    as of no owned class, corrected by the prior. It may be negative.
    """
    is_labelled = positive.any(1, keepdim=True)
    labelled_count = is_labelled.sum().clamp(min=1)
    unlabelled_count = (~is_labelled).sum().clamp(min=1) * logits.shape[1]
    zeros = torch.zeros_like(logits)
    log_shares = torch.log_softmax(logits, 1)
    as_negative = -torch.log(1 - log_shares.exp() + EPSILON)
    cross_entropy = -torch.where(positive, log_shares, zeros).sum() / labelled_count
    on_unlabelled = torch.where(~is_labelled & owned, as_negative, zeros).sum() / unlabelled_count
    on_labelled = torch.where(positive, prior * as_negative, zeros).sum() / labelled_count
    return cross_entropy + weight * (on_unlabelled - on_labelled)


def _column_mean(values: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, values, torch.zeros_like(values)).sum(0) / mask.sum(0).clamp(min=1)
