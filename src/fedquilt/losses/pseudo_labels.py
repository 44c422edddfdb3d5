"""Pseudo-labels: ``NO_TAG``, their loss, confidence thresholds, uncertainty ranking."""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fedquilt.losses.cross_entropy import elementwise_bce

NO_TAG = -1


def no_tags(known: Tensor) -> Tensor:
    """(N, C) int8, for as many labels as ``known`` has."""
    return torch.full(known.shape, NO_TAG, dtype=torch.int8)


def tagged_bce(logits: Tensor, tags: Tensor) -> Tensor:
    """The sum over classes of the mean over a class's tagged samples; without any, 0.

    A positive tag weighs tagged / positive of its class in this batch, 1 if there is none.
    """
    tagged = tags != NO_TAG
    targets = (tags == 1).to(logits.dtype)
    count, positives = tagged.sum(0), targets.sum(0)
    weight = torch.where(positives > 0, count / positives.clamp(min=1), 1.0)
    entries = elementwise_bce(logits, targets, weight)
    kept = torch.where(tagged, entries, torch.zeros_like(entries))
    return (kept.sum(0) / count.clamp(min=1)).sum()


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


Entropy = Literal["binary", "one_sided", "softmax"]


def uncertainty(kind: Entropy, logits: Tensor, known: Tensor) -> Tensor:
    """Per image, 0 where the model is sure.

    ``binary``: the mean entropy over an image's missing labels, in 0..1; 0 if none is missing.
    ``one_sided``, as in FedLSM's public code: -p ln p alone, over the number of all classes. It
    peaks at 1/e, so that of two equally sure guesses "present" looks surer than "absent".
    ``softmax``, for images of one class each: the entropy over all classes, in 0..1; logits are
    the log-odds of their shares.
    """
    if kind == "softmax":
        log_shares = F.logsigmoid(logits)
        return -(log_shares.exp() * log_shares).sum(1) / math.log(max(logits.shape[1], 2))
    if kind == "one_sided":
        return torch.where(known, 0.0, -torch.sigmoid(logits) * F.logsigmoid(logits)).mean(1)
    bits = torch.where(known, 0.0, binary_entropy(logits) / math.log(2))
    return bits.sum(1) / (~known).sum(1).clamp(min=1)


def by_uncertainty(unsure: Tensor, uncertain: int, certain: int) -> tuple[Tensor, Tensor, Tensor]:
    """Row numbers of the most uncertain images, of the least, and of those between.

    If there are fewer images than asked for, both ends shrink by the same factor: they never
    overlap.
    """
    count, asked = len(unsure), max(uncertain + certain, 1)
    uncertain, certain = (min(size, count * size // asked) for size in (uncertain, certain))
    order = unsure.argsort(stable=True)
    least, between, most = order.split([certain, count - certain - uncertain, uncertain])
    return most, least, between
