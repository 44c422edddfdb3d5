"""Class priors in the loss: positive weights, logit adjustment, scaled and suppressed logits."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

PositiveWeight = Literal["none", "inverse-prevalence", "odds"]
Restriction = Literal["annotated", "present", "frequency"]


def positive_weight(
    kind: PositiveWeight, positives: Tensor, annotated: Tensor, cap: float | None = None
) -> Tensor:
    """Return the weight of a positive label, per class; 1 for a class without annotated positives.

    ``inverse-prevalence`` is annotated / positives, ``odds`` is negatives / positives.
    """
    ones = torch.ones(positives.shape)
    if kind == "none":
        return ones
    numerator = annotated if kind == "inverse-prevalence" else annotated - positives
    ratio = numerator / positives.clamp(min=1)
    weight = torch.where((positives > 0) & (numerator > 0), ratio.to(torch.float32), ones)
    return weight if cap is None else weight.clamp(max=cap)


def population_weight(
    kind: PositiveWeight,
    positives: Tensor,
    annotated: Tensor,
    cap: float | None,
    names: Sequence[str],
) -> Tensor:
    """Like :func:`positive_weight`, from the counts of all clients.

    A class without positives gets the cap as its weight, if there is one, and a warning names it.
    """
    weight = positive_weight(kind, positives, annotated, cap)
    absent = [name for name, count in zip(names, positives.tolist()) if count == 0]
    if absent and kind != "none" and cap is not None:
        weight = torch.where(positives == 0, cap, weight)
        warnings.warn(f"no client has a positive of {', '.join(absent)}", stacklevel=2)
    return weight


def clamp_prior(prior: Tensor, count: int) -> Tensor:
    """Keep a prior estimated from ``count`` samples off 0 and 1, where its logit is infinite."""
    margin = 1.0 / (count + 2)
    return prior.clamp(margin, 1.0 - margin)


def tagged_prior(
    positives: Tensor, annotated: Tensor, tags: Tensor, images: int, *, of_all: bool
) -> Tensor:
    """FedMLP's pi, per class: positives, true and tagged, among labels or among all images.

    Args:
        positives: (C,) annotated positives.
        annotated: (C,) annotated labels.
        tags: (N, C) int8, at unannotated entries.
        images: their number N.
        of_all: divide by ``images`` instead of the class's annotated and tagged labels.
    """
    positives = positives + (tags == 1).sum(0)
    labels = annotated + (tags >= 0).sum(0)
    counted = torch.full_like(labels, images) if of_all else labels.clamp(min=1)
    return clamp_prior(positives / counted, images)


def adjust_logits(logits: Tensor, prior: Tensor) -> Tensor:
    """Logits whose sigmoid is y * pi / (y * pi + (1 - y) * (1 - pi)) for y = sigmoid(logits)."""
    return logits + torch.logit(prior)


def logit_scale(kind: Restriction, positives: Tensor, annotated: Tensor, alpha: float) -> Tensor:
    """Return a factor for each class's logit: 1 for a class the client has, else alpha.

    A client has a class if it annotates it (``annotated``) or holds an annotated positive of it
    (``present``). With ``frequency`` the factor grows from alpha to 1 with the number of
    positives, and is 1 for the most frequent class.
    """
    if kind == "frequency":
        owned = positives / positives.amax().clamp(min=1)
    else:
        owned = (annotated if kind == "annotated" else positives) > 0
    return (alpha + (1.0 - alpha) * owned).to(torch.float32)


def logit_suppression(
    logits: Tensor, negatives: Tensor, annotated: Tensor, prior: Tensor
) -> Tensor:
    """Sum over classes of pi_c * (logsumexp over negatives of (z_c - log pi_c) - log n_c).

    Args:
        logits: (B, C).
        negatives: (B, C) bool, entries annotated as absent.
        annotated: (B, C) bool, entries annotated at all; n_c is their number in class c.
        prior: (C,) pi, between 0 and 1. A class without a negative in the batch adds nothing.
    """
    soft_maximum = torch.where(negatives, logits - torch.log(prior), -math.inf).logsumexp(0)
    mean = soft_maximum - annotated.sum(0).clamp(min=1).log()
    return torch.where(negatives.any(0), prior * mean, torch.zeros_like(mean)).sum()
