"""FedIRM's relation matrix: what a model says of all classes where one of them is present."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def relation_logits(logits: Tensor, members: Tensor, temperature: float) -> Tensor:
    """Row c, of (C, C), is the mean logits of the members of class c divided by the temperature.

    ``members`` is (B, C) bool. A class without members has a row of 0, a probability of one half.
    """
    chosen = members.to(logits.dtype)
    return chosen.T @ logits / chosen.sum(0).clamp(min=1)[:, None] / temperature


def relation_gap(source_logits: Tensor, target: Tensor, rows: Tensor) -> Tensor:
    """Symmetric divergence of sigmoid(source) and ``target`` over ``rows``, (C,) bool.

    Sum of (P - Q) (log P - log Q) over 2 C: each entry's share is at least 0, although rows of
    probabilities that do not sum to 1 can make either one-sided sum negative.
    """
    smallest = torch.finfo(target.dtype).tiny
    log_ratio = F.logsigmoid(source_logits) - target.clamp(min=smallest).log()
    entries = (torch.sigmoid(source_logits) - target) * log_ratio
    kept = torch.where(rows[:, None], entries, torch.zeros_like(entries))
    return kept.sum() / (2 * len(target))
