"""Losses of FedVLS for images of one class each, where classes compete in a softmax."""

from __future__ import annotations

import torch
from torch import Tensor

EPSILON = 1e-9  # keeps the logarithm of a prior of 0 away
LOW = -1e30  # a logit of no share; minus infinity would give gradients that are no numbers


def calibrated_cross_entropy(logits: Tensor, positive: Tensor, prior: Tensor) -> Tensor:
    """Cross-entropy with the prior in the logits, the mean over labelled images; without any, 0.

    ``positive`` is (B, C) bool with at most one class an image, ``prior`` (C,) of shares.
    """
    log_shares = torch.log_softmax(logits + torch.log(prior + EPSILON), 1)
    labelled = positive.any(1).sum().clamp(min=1)
    return -torch.where(positive, log_shares, 0.0).sum() / labelled


def vacant_divergence(teacher: Tensor, student: Tensor, vacant: Tensor) -> Tensor:
    """KL(teacher || student) of softmaxes over the ``vacant`` classes, (C,), mean over images.

    Blind to a shift of all of them; 0 for a single vacant class, and without any.
    """
    log_teacher, log_student = (
        torch.log_softmax(torch.where(vacant, logits, LOW), 1) for logits in (teacher, student)
    )
    entries = log_teacher.exp() * (log_teacher - log_student)
    return torch.where(vacant, entries, 0.0).sum(1).mean()


def soft_maxima(logits: Tensor, positive: Tensor, prior: Tensor) -> Tensor:
    """T_c, per class the soft maximum of calibrated logits over labelled images of other classes.

    As in the authors' code: an image of the class itself counts as a logit of 0. Without a
    labelled image, 0.
    """
    is_labelled = positive.any(1, keepdim=True)
    even = torch.log(torch.full_like(prior, 1 / len(prior)) + EPSILON)
    others = logits - torch.log(prior + EPSILON) + even
    counted = torch.where(positive, 0.0, others)
    soft = (
        torch.where(is_labelled, counted, LOW).logsumexp(0) - is_labelled.sum().clamp(min=1).log()
    )
    return torch.where(is_labelled.any(), soft, 0.0)
