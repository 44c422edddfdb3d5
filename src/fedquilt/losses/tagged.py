"""Tags: labels that a model filled in, 0 or 1, and ``NO_TAG`` where it did not; their loss."""

from __future__ import annotations

import torch
from torch import Tensor

from fedquilt.losses.binary import elementwise_bce

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
