"""Asymmetric loss: easy negatives count for little, very easy ones for nothing."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def asymmetric_loss(
    logits: Tensor,
    labels: Tensor,
    known: Tensor,
    positive_weight: Tensor | None = None,
    focus: tuple[float, float] = (4.0, 1.0),
    margin: float = 0.05,
) -> Tensor:
    """Summed over the known entries, as its authors have it.

    A positive of probability p costs (1 - p)^g * -log(p). A negative's p is lowered by the
    margin, at most to 0, and then costs p^g * -log(1 - p). ``focus`` is g, of negatives and of
    positives: 0, or 1 and more, as between them its slope at p = 0 is infinite. Gradients pass
    through the factors too.
    """
    of_negatives, of_positives = focus
    scores = logits.to(labels.dtype)  # a sum of logarithms is no place for bfloat16
    absent = torch.sigmoid(-scores)
    positive = absent**of_positives * F.logsigmoid(scores)
    if positive_weight is not None:
        positive = positive_weight * positive
    shifted = (absent + margin).clamp(torch.finfo(absent.dtype).tiny, 1.0)
    negative = (1 - shifted) ** of_negatives * shifted.log()
    return -torch.where(known, torch.where(labels == 1, positive, negative), 0.0).sum()
