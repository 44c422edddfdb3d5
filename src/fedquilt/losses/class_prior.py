"""Class priors: weights for rare positives, adjusted, damped and suppressed logits."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

PositiveWeight = Literal["none", "inverse-prevalence", "odds"]


def positive_weight(
    kind: PositiveWeight, positives: Tensor, annotated: Tensor, cap: float | None = None
) -> Tensor:
    """Per class, how much a positive counts; 1 where there is no annotated positive to weigh.

    ``inverse-prevalence`` is annotated / positives, ``odds`` is negatives / positives.
    """
    ones = torch.ones(positives.shape)
    if kind == "none":
        return ones
    numerator = annotated if kind == "inverse-prevalence" else annotated - positives
    ratio = numerator / positives.clamp(min=1)
    weight = torch.where((positives > 0) & (numerator > 0), ratio.to(torch.float32), ones)
    return weight if cap is None else weight.clamp(max=cap)


def adjust_logits(logits: Tensor, prior: Tensor) -> Tensor:
    """Logits whose sigmoid is y * pi / (y * pi + (1 - y) * (1 - pi)) for y = sigmoid(logits)."""
    return logits + torch.logit(prior)


def clamp_prior(prior: Tensor, count: int) -> Tensor:
    """Keep a share of ``count`` samples away from 0 and 1, where its log-odds are infinite."""
    margin = 1.0 / (count + 2)
    return prior.clamp(margin, 1.0 - margin)


Restriction = Literal["annotated", "present", "frequency"]


def logit_scale(kind: Restriction, positives: Tensor, annotated: Tensor, alpha: float) -> Tensor:
    """Per class, the factor of its logit: 1 for a class the client has, alpha for one it lacks.

    A client has a class that it annotates (``annotated``), or of which it has an annotated
    positive (``present``). With ``frequency`` the factor grows from alpha to 1 with the number of
    positives, and is 1 for the most frequent class.
    """
    if kind == "frequency":
        owned = positives / positives.amax().clamp(min=1)
    else:
        owned = (annotated if kind == "annotated" else positives) > 0
    return (alpha + (1.0 - alpha) * owned).to(torch.float32)


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
