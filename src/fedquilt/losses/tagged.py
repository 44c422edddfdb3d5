"""Binary cross-entropy of labels that a model filled in, class by class."""

from __future__ import annotations

import torch
from torch import Tensor

from fedquilt.losses.binary import elementwise_bce
from fedquilt.prototypes import NO_TAG


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
