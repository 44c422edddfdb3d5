"""FedVLS's softmax losses, for images of one class each."""

from __future__ import annotations

import torch
from torch import Tensor

EPSILON = 1e-9  # avoids the logarithm of a prior of 0
MASKED = -1e30  # the logit of an excluded entry; minus infinity would give NaN gradients


def calibrated_cross_entropy(logits: Tensor, positive: Tensor, prior: Tensor) -> Tensor:
    """Cross-entropy of logits + log prior, mean over labelled images; 0 without any.

    ``positive`` is (B, C) bool with at most one class per image, ``prior`` is (C,).
    """
    log_shares = torch.log_softmax(logits + torch.log(prior + EPSILON), 1)
    labelled = positive.any(1).sum().clamp(min=1)
    return -torch.where(positive, log_shares, 0.0).sum() / labelled


def vacant_divergence(teacher: Tensor, student: Tensor, vacant: Tensor) -> Tensor:
    """KL(teacher || student) of softmaxes over the ``vacant`` classes, (C,), mean over images.

    Adding a constant to all vacant logits changes nothing. It is 0 for fewer than two vacant
    classes.
    """
    log_teacher, log_student = (
        torch.log_softmax(torch.where(vacant, logits, MASKED), 1) for logits in (teacher, student)
    )
    entries = log_teacher.exp() * (log_teacher - log_student)
    return torch.where(vacant, entries, 0.0).sum(1).mean()


def soft_maxima(logits: Tensor, positive: Tensor, prior: Tensor) -> Tensor:
    """T_c: soft maximum, per class, of calibrated logits over labelled images of other classes.

    As in the authors' code, an image of the class itself counts as a logit of 0. It is 0 without
    a labelled image.
    """
    is_labelled = positive.any(1, keepdim=True)
    uniform = torch.log(torch.full_like(prior, 1 / len(prior)) + EPSILON)
    calibrated = logits - torch.log(prior + EPSILON) + uniform
    counted = torch.where(positive, 0.0, calibrated)
    soft_maximum = torch.where(is_labelled, counted, MASKED).logsumexp(0)
    mean = soft_maximum - is_labelled.sum().clamp(min=1).log()
    return torch.where(is_labelled.any(), mean, 0.0)
