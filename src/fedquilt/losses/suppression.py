"""Logit suppression: a soft maximum of a class's logits over its negatives."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def logit_suppression(logits: Tensor, negatives: Tensor, judged: Tensor, prior: Tensor) -> Tensor:
    """Sum over classes of pi_c * (logsumexp over negatives of (z_c - log pi_c) - log judged).

    Args:
        logits: (B, C).
        negatives: (B, C) bool, where the class is annotated as absent.
        judged: (B, C) bool, where the class is annotated at all.
        prior: (C,) pi, between 0 and 1. A class without a negative in the batch adds nothing.
    """
    soft_maximum = torch.where(negatives, logits - torch.log(prior), -math.inf).logsumexp(0)
    mean = soft_maximum - judged.sum(0).clamp(min=1).log()
    return torch.where(negatives.any(0), prior * mean, torch.zeros_like(mean)).sum()
