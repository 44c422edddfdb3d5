"""Which predictions are sure enough to stand in for a label, and thresholds for that."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fedquilt.losses.tagged import NO_TAG


def is_confident(logits: Tensor, threshold: float | Tensor) -> Tensor:
    """Whether a probability is above the threshold or below 1 minus it; (C,) is one per class."""
    probabilities = torch.sigmoid(logits.detach())
    return (probabilities > threshold) | (probabilities < 1 - threshold)


def binary_entropy(logits: Tensor) -> Tensor:
    """Entropy of the probabilities in nats, entry by entry; saturated logits have none."""
    probabilities = torch.sigmoid(logits)
    present = probabilities * F.logsigmoid(logits)
    absent = (1 - probabilities) * F.logsigmoid(-logits)
    return -(present + absent)


def class_thresholds(share: Tensor, base: float, low: float, high: float) -> Tensor:
    """CBAFed: a class with a large share of the labels has to be surer; within ``low``..``high``.

    ``share`` is (C,). The deviation over classes is the unbiased one, and 0 for a single class.
    """
    deviation = share.std() if len(share) > 1 else torch.zeros_like(share[0])
    return (share + base - deviation).clamp(low, high)


def confident_tags(logits: Tensor, threshold: float | Tensor, open_cells: Tensor) -> Tensor:
    """Labels for the open cells the model is sure of, (N, C) int8, and ``NO_TAG`` elsewhere."""
    sure = is_confident(logits, threshold) & open_cells
    return torch.where(sure, (logits > 0).to(torch.int8), NO_TAG)
