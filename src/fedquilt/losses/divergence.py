"""Divergences between two predictions of the same labels, entry by entry, from logits."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def bernoulli_kl(teacher: Tensor, student: Tensor) -> Tensor:
    """KL(sigmoid(teacher) || sigmoid(student)); no logarithm of 0, and exactly 0 where equal."""
    gap = F.softplus(student) - F.softplus(teacher)
    return torch.sigmoid(teacher) * (teacher - student) + gap


def jensen_shannon(first: Tensor, second: Tensor, *, both_sides: bool = True) -> Tensor:
    """Half the divergences of two probabilities from their mean.

    ``both_sides`` counts "present" and "absent", as a Bernoulli variable has them; without it
    "present" alone counts, as in code that was written for softmax outputs.
    """
    present = _half_divergence(first, second)
    return present + _half_divergence(-first, -second) if both_sides else present


def _half_divergence(first: Tensor, second: Tensor) -> Tensor:
    log_first, log_second = F.logsigmoid(first), F.logsigmoid(second)
    log_mean = torch.logaddexp(log_first, log_second) - math.log(2.0)
    summed = log_first.exp() * (log_first - log_mean) + log_second.exp() * (log_second - log_mean)
    return 0.5 * summed
