"""Which labels a model is told while it trains, and the loss of those it has to guess."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedquilt.losses.cross_entropy import elementwise_bce

UNKNOWN, NEGATIVE, POSITIVE = -1, 0, 1  # the state of a label, as the model is told it
ROUNDING = 1e-9  # a share times a count may fall short of the whole number that is meant


def draw_told(
    batch_size: int, class_count: int, largest_share: float, generator: torch.Generator
) -> Tensor:
    """(B, C) bool: the labels of each image to tell, 0 to ``largest_share`` of them.

    Every number of labels is as likely, and every choice of so many.
    """
    most = math.floor(largest_share * class_count + ROUNDING)
    counts = torch.randint(most + 1, (batch_size, 1), generator=generator)
    ranks = torch.rand(batch_size, class_count, generator=generator).argsort(1).argsort(1)
    return ranks < counts


def label_states(labels: Tensor, told: Tensor) -> Tensor:
    """(B, C) int8: a label where it is told, else unknown."""
    return torch.where(told, (labels == 1).to(torch.int8), UNKNOWN)


def forget_doubtful(
    states: Tensor, probabilities: Tensor, threshold: float, margin: float
) -> Tensor:
    """States in which a label is unknown if its probability is within the margin of the threshold.

    A label can only become unknown; none is told that was not told before.
    """
    doubtful = (probabilities - threshold).abs() <= margin
    return torch.where(doubtful, UNKNOWN, states)


def guessed_bce(
    logits: Tensor,
    labels: Tensor,
    known: Tensor,
    states: Tensor,
    positive_weight: Tensor | None = None,
) -> Tensor:
    """The sum, not the mean, of the cross-entropy over known labels that were not told."""
    entries = elementwise_bce(logits, torch.where(known, labels, 0.0), positive_weight)
    return torch.where(known & (states == UNKNOWN), entries, 0.0).sum()
