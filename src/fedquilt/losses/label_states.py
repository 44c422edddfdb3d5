"""Label states of C-Tran: labels revealed to the model in training, and the loss of the others."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedquilt.losses.cross_entropy import elementwise_bce

UNKNOWN, NEGATIVE, POSITIVE = -1, 0, 1  # the state of a label that the model receives as input
ROUNDING = 1e-9  # a share times a count can fall just below the whole number it stands for


def draw_revealed(
    batch_size: int, class_count: int, largest_share: float, generator: torch.Generator
) -> Tensor:
    """Draw the labels to reveal, (B, C) bool: from none to ``largest_share`` of each image's.

    The number of labels is uniform, and so is the choice of labels given their number.
    """
    most = math.floor(largest_share * class_count + ROUNDING)
    counts = torch.randint(most + 1, (batch_size, 1), generator=generator)
    ranks = torch.rand(batch_size, class_count, generator=generator).argsort(1).argsort(1)
    return ranks < counts


def label_states(labels: Tensor, revealed: Tensor) -> Tensor:
    """(B, C) int8: the label where it is revealed, else unknown."""
    return torch.where(revealed, (labels == 1).to(torch.int8), UNKNOWN)


def mask_uncertain(
    states: Tensor, probabilities: Tensor, threshold: float, margin: float
) -> Tensor:
    """Set a state to unknown if its probability is within ``margin`` of the threshold.

    No further label is revealed.
    """
    uncertain = (probabilities - threshold).abs() <= margin
    return torch.where(uncertain, UNKNOWN, states)


def hidden_label_bce(
    logits: Tensor,
    labels: Tensor,
    known: Tensor,
    states: Tensor,
    positive_weight: Tensor | None = None,
) -> Tensor:
    """Sum, not mean, of the cross-entropy over known labels whose state is unknown."""
    entries = elementwise_bce(logits, torch.where(known, labels, 0.0), positive_weight)
    return torch.where(known & (states == UNKNOWN), entries, 0.0).sum()
