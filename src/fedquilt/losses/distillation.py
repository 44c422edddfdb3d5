"""Distillation: distances between two predictions of the same labels."""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor


def squared_gap(student: Tensor, teacher: Tensor) -> Tensor:
    """Squared difference of the probabilities, per entry; no gradient flows to the teacher."""
    return (torch.sigmoid(student) - torch.sigmoid(teacher.detach())).square()


def bernoulli_kl(teacher: Tensor, student: Tensor) -> Tensor:
    """KL(sigmoid(teacher) || sigmoid(student)), per entry; finite, and exactly 0 where equal."""
    gap = F.softplus(student) - F.softplus(teacher)
    return torch.sigmoid(teacher) * (teacher - student) + gap


def jensen_shannon(first: Tensor, second: Tensor, *, both_sides: bool = True) -> Tensor:
    """Jensen-Shannon divergence of the probabilities, per entry.

    Args:
        both_sides: count "present" and "absent", as for a Bernoulli variable. False counts
            "present" only, as code written for softmax outputs does.
    """
    present = _half_divergence(first, second)
    return present + _half_divergence(-first, -second) if both_sides else present


def _half_divergence(first: Tensor, second: Tensor) -> Tensor:
    log_first, log_second = F.logsigmoid(first), F.logsigmoid(second)
    log_mean = torch.logaddexp(log_first, log_second) - math.log(2.0)
    summed = log_first.exp() * (log_first - log_mean) + log_second.exp() * (log_second - log_mean)
    return 0.5 * summed


def mixed_logits(first: Tensor, second: Tensor, share: Tensor) -> Tensor:
    """Logits of share * sigmoid(first) + (1 - share) * sigmoid(second), for a share in 0..1.

    Computed from log-probabilities, so confident predictions need no clamping.
    """
    log_first, log_second = torch.log(share), torch.log1p(-share)
    present = torch.logaddexp(log_first + F.logsigmoid(first), log_second + F.logsigmoid(second))
    absent = torch.logaddexp(log_first + F.logsigmoid(-first), log_second + F.logsigmoid(-second))
    return present - absent


def relation_logits(logits: Tensor, members: Tensor, temperature: float) -> Tensor:
    """FedIRM: row c, of (C, C), is the mean logits of the members of class c over the temperature.

    ``members`` is (B, C) bool. A class without members gets a row of 0, a probability of 0.5.
    """
    chosen = members.to(logits.dtype)
    return chosen.T @ logits / chosen.sum(0).clamp(min=1)[:, None] / temperature


def relation_matrix(logits: Tensor, members: Tensor, temperature: float, batch_size: int) -> Tensor:
    """The mean over batches of sigmoid(:func:`relation_logits`), (C, C)."""
    batches = zip(logits.split(batch_size), members.split(batch_size))
    matrices = [torch.sigmoid(relation_logits(*batch, temperature)) for batch in batches]
    return torch.stack(matrices).mean(0)


def relation_rows(
    kind: Literal["positives", "batches"],
    logits: Tensor,
    positives: Tensor,
    known: Tensor,
    temperature: float,
    batch_size: int,
) -> tuple[Tensor, Tensor]:
    """FedIRM: a client's relation matrix (C, C), and each row's weight in the mean of clients.

    Over all ``positives``, or as the mean over ``batches``, in which annotated classes without
    positives have rows too.
    """
    whole = kind == "positives"
    matrix = relation_matrix(logits, positives, temperature, len(logits) if whole else batch_size)
    return matrix, (positives if whole else known).any(0) * float(len(logits))


def relation_gap(source_logits: Tensor, target: Tensor, rows: Tensor) -> Tensor:
    """Symmetric KL divergence of sigmoid(source_logits) and ``target`` over ``rows``, (C,) bool.

    The sum of (P - Q) (log P - log Q) over 2 C. Each term is at least 0, although the rows do not
    sum to 1 and either one-sided sum can be negative.
    """
    smallest = torch.finfo(target.dtype).tiny
    log_ratio = F.logsigmoid(source_logits) - target.clamp(min=smallest).log()
    entries = (torch.sigmoid(source_logits) - target) * log_ratio
    kept = torch.where(rows[:, None], entries, torch.zeros_like(entries))
    return kept.sum() / (2 * len(target))
