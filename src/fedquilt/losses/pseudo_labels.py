"""Pseudo-labels: tags and their loss, confidence thresholds, uncertainty of images.

Tags are (N, C) int8: 0 or 1 for a pseudo-label, ``NO_TAG`` for none.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fedquilt.losses.cross_entropy import elementwise_bce

NO_TAG = -1
Entropy = Literal["binary", "one_sided", "softmax"]


def no_tags(known: Tensor) -> Tensor:
    """Tags of the shape of ``known``, all ``NO_TAG``."""
    return torch.full(known.shape, NO_TAG, dtype=torch.int8)


def with_tags(
    labels: Tensor, known: Tensor, tags: Tensor, open_entries: Tensor
) -> tuple[Tensor, Tensor]:
    """Return labels and their mask with the tags of the open entries filled in; others are 0."""
    tagged = (tags != NO_TAG) & open_entries
    filled, mask = torch.where(tagged, tags.to(labels.dtype), labels), known | tagged
    return torch.where(mask, filled, 0.0), mask


def tagged_bce(logits: Tensor, tags: Tensor) -> Tensor:
    """Sum over classes of the mean cross-entropy over a class's tagged samples; 0 without any.

    A positive tag has weight tagged / positive of its class in this batch.
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


def class_thresholds(share: Tensor, base: float, low: float, high: float) -> Tensor:
    """CBAFed: the larger a class's share of the labels, the higher its confidence threshold.

    ``share`` is (C,); thresholds are clamped to ``low``..``high``. The standard deviation over
    classes is the unbiased one, and 0 for a single class.
    """
    deviation = share.std() if len(share) > 1 else torch.zeros_like(share[0])
    return (share + base - deviation).clamp(low, high)


def confident_tags(logits: Tensor, threshold: float | Tensor, open_entries: Tensor) -> Tensor:
    """Tag the open entries the model is confident of, (N, C) int8; ``NO_TAG`` elsewhere."""
    confident = is_confident(logits, threshold) & open_entries
    return torch.where(confident, (logits > 0).to(torch.int8), NO_TAG)


def binary_entropy(logits: Tensor) -> Tensor:
    """Entropy of the probabilities in nats, per entry; 0 for saturated logits."""
    probabilities = torch.sigmoid(logits)
    present = probabilities * F.logsigmoid(logits)
    absent = (1 - probabilities) * F.logsigmoid(-logits)
    return -(present + absent)


def confident_positives(logits: Tensor, entropy_limit: float, threshold: float) -> Tensor:
    """FedIRM: labels predicted present, (B, C) bool, on images that are confident as a whole.

    The entropies of such an image sum to less than the limit, and each of its probabilities is
    above the threshold or below 1 minus it.
    """
    low_entropy = binary_entropy(logits.detach()).sum(1) < entropy_limit
    confident = low_entropy & is_confident(logits, threshold).all(1)
    return confident[:, None] & (logits > 0)


def uncertainty(kind: Entropy, logits: Tensor, known: Tensor) -> Tensor:
    """Return the uncertainty of each image, (B,); 0 where the model is certain.

    ``binary``: the mean entropy over an image's missing labels, in 0..1; 0 if none is missing.
    ``one_sided``, as in FedLSM's public code: -p ln p alone, over the number of all classes. It
    peaks at p = 1/e, so a confident "present" looks more certain than an equally confident
    "absent".
    ``softmax``, for images of one class each: the entropy over all classes, in 0..1; logits are
    the log-odds of the softmax probabilities.
    """
    if kind == "softmax":
        log_shares = F.logsigmoid(logits)
        return -(log_shares.exp() * log_shares).sum(1) / math.log(max(logits.shape[1], 2))
    if kind == "one_sided":
        return torch.where(known, 0.0, -torch.sigmoid(logits) * F.logsigmoid(logits)).mean(1)
    bits = torch.where(known, 0.0, binary_entropy(logits) / math.log(2))
    return bits.sum(1) / (~known).sum(1).clamp(min=1)


def by_uncertainty(scores: Tensor, uncertain: int, certain: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the indices of the most uncertain images, of the least, and of those in between.

    If there are fewer images than requested, both ends shrink by the same factor, so they never
    overlap.
    """
    count, requested = len(scores), max(uncertain + certain, 1)
    uncertain, certain = (min(size, count * size // requested) for size in (uncertain, certain))
    order = scores.argsort(stable=True)
    least, between, most = order.split([certain, count - certain - uncertain, uncertain])
    return most, least, between
