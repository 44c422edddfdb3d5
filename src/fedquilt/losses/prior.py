"""Class priors of a client: weights for rare positives, and logits adjusted to a prior."""

from __future__ import annotations

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
