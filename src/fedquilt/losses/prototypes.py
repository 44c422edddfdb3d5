"""Dual class prototypes: mean features of absent and present samples, and pseudo-labels by them."""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fedquilt.losses.pseudo_labels import NO_TAG

Rounding = Literal["floor", "ceil"]
PrototypeWeights = Literal["counts", "clients", "samples"]

NEVER = 1_000_000  # the age of a prototype that no client has sent yet
TOLERANCE = 1e-9  # 0.29 * 100 is 28.999... in binary; rounding it must not lose a sample


def class_prototypes(features: Tensor, labels: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
    """Mean features (C, 2, d) over annotated absent and present samples, and their counts (C, 2).

    A side without samples has count 0 and a prototype of zeros that must not be used.
    """
    sides = torch.stack([known & (labels == 0), known & (labels == 1)], dim=2)  # (N, C, 2)
    counts = sides.sum(0)
    sums = torch.einsum("ncs,nd->csd", sides.to(features.dtype), features)
    return sums / counts.clamp(min=1)[..., None], counts


def clipped_rows(features: Tensor, norm: float) -> Tensor:
    """Shorten the rows that are longer than ``norm``."""
    shortened: Tensor = features * (
        norm / features.norm(dim=1, keepdim=True).clamp(min=1e-12)
    ).clamp(max=1.0)
    return shortened


def prototype_weights(kind: PrototypeWeights, counts: Tensor, images: int) -> Tensor:
    """A client's weights in the mean of prototypes, (C, 2); 0 for a side without samples.

    ``counts``: the side's samples. ``clients``: 1. ``samples``: all of the client's images.
    """
    if kind == "counts":
        return counts
    return (counts > 0) * (1.0 if kind == "clients" else float(images))


def never_sent(class_count: int) -> Tensor:
    """The age of prototypes before the first round, (C, 2)."""
    return torch.full((class_count, 2), NEVER)


def older(age: Tensor, sent: Tensor) -> Tensor:
    """The age after a round: 0 for the prototypes that were ``sent``, one more for the others."""
    return torch.where(sent, 0, (age + 1).clamp(max=NEVER))


def usable_classes(prototypes: Tensor, age: Tensor, limit: int) -> Tensor:
    """The classes of which both prototypes were sent at most ``limit`` rounds ago, (C,) bool."""
    usable: Tensor = ((age <= limit) & (prototypes.norm(dim=2) > 0)).all(1)
    return usable


def absence_score(features: Tensor, prototypes: Tensor) -> Tensor:
    """cos(absent prototype, feature) - cos(present prototype, feature), (N, C).

    At or above 0 the class looks absent, below 0 it looks present.
    """
    similarity = torch.einsum(
        "nd,csd->ncs", F.normalize(features, dim=1), F.normalize(prototypes, dim=2)
    )
    return similarity[..., 0] - similarity[..., 1]


def most_certain(score: Tensor, candidates: Tensor, share: Tensor, rounding: Rounding) -> Tensor:
    """Mask, per class, the ``share`` of the candidates with the highest score, (N, C) bool."""
    wanted = candidates.sum(0).to(torch.float64) * share.to(torch.float64)
    count = (wanted + TOLERANCE).floor() if rounding == "floor" else (wanted - TOLERANCE).ceil()
    ranked = torch.where(candidates, score, torch.full_like(score, -math.inf))
    order = ranked.argsort(dim=0, descending=True, stable=True)
    places = torch.arange(len(score), device=score.device)[:, None].expand_as(order)
    rank = torch.empty_like(order).scatter_(0, order, places)
    return candidates & (rank < count)


def tag_missing_labels(
    tags: Tensor,
    score: Tensor,
    open_entries: Tensor,
    negative_share: Tensor,
    positive_share: Tensor,
    rounding: Rounding = "floor",
    *,
    positives_need_negatives: bool = False,
) -> Tensor:
    """Return new tags (N, C) int8: the most certain absent entries get 0, present ones get 1.

    Only entries in ``open_entries`` without a tag can change; a tag is never removed.
    """
    untagged = open_entries & (tags == NO_TAG)
    absent = most_certain(score, untagged & (score >= 0), negative_share, rounding)
    present = most_certain(-score, untagged & (score < 0), positive_share, rounding)
    if positives_need_negatives:
        present = present & absent.any(0)
    return torch.where(absent, 0, torch.where(present, 1, tags)).to(tags.dtype)


def decided_share(logits: Tensor, mask: Tensor, low: float, high: float) -> tuple[Tensor, Tensor]:
    """Per class, the share of ``mask`` with a probability outside [low, high], and its count."""
    probabilities = torch.sigmoid(logits)
    decided = (probabilities < low) | (probabilities > high)
    count = mask.sum(0)
    return (decided & mask).sum(0) / count.clamp(min=1), count
