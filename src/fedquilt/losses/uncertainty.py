"""How unsure a model is of an image's missing labels, and the images it is most and least so."""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fedquilt.losses.confidence import binary_entropy

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
