"""Soft targets: true labels, confident teacher predictions, and MixUp of both."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fedquilt.losses.cross_entropy import elementwise_bce
from fedquilt.losses.pseudo_labels import NO_TAG

Labels = Literal["multi", "single"]
Weighed = Literal["positives", "entries", "mean"]


class Targets(NamedTuple):
    """All (B, C); a target that is not valid is no more than what the teacher thinks."""

    targets: Tensor  # in 0..1
    valid: Tensor  # bool: where a target may be learnt
    is_pseudo: Tensor  # bool: where it is the teacher's

    def positive_counts(self) -> Tensor:
        """Per class, the positives that may be learnt: true ones and the teacher's."""
        return ((self.targets == 1) & self.valid).sum(0)

    def tags(self) -> Tensor:
        """The teacher's labels alone, (B, C) int8."""
        return torch.where(self.is_pseudo, self.targets.to(torch.int8), NO_TAG)


def make_targets(
    kind: Labels, labels: Tensor, known: Tensor, teacher: Tensor, thresholds: tuple[float, float]
) -> Targets:
    """True labels, and those a teacher's logits are sure of; the lower threshold comes first.

    Of one class an image, logits are the log-odds of shares that sum to 1: those of the softmax
    head.
    """
    if kind == "single":
        return _believe_class(labels, known, teacher.detach(), thresholds[1])
    return _believe_labels(labels, known, teacher.detach(), *thresholds)


def _believe_labels(
    labels: Tensor, known: Tensor, teacher: Tensor, low: float, high: float
) -> Targets:
    """A missing label is 1 at a probability of ``high`` or above, and 0 at ``low`` or below."""
    probability = torch.sigmoid(teacher.float())
    present = probability >= high
    is_pseudo = (present | (probability <= low)) & ~known
    guess = torch.where(is_pseudo, present.to(probability.dtype), probability)
    return Targets(torch.where(known, labels, guess), known | is_pseudo, is_pseudo)


def _believe_class(labels: Tensor, known: Tensor, teacher: Tensor, high: float) -> Targets:
    """An unlabelled image is of the likeliest class, if its share in the softmax is ``high``.

    But not of a class that was annotated as absent; then it has no target at all.
    """
    share, winner = torch.sigmoid(teacher.float()).max(1, keepdim=True)
    labelled = (known & (labels == 1)).any(1, keepdim=True)
    is_filled = ~labelled & (share >= high) & ~known.gather(1, winner)
    guess = torch.zeros_like(labels).scatter(1, winner, 1.0) * is_filled
    targets = torch.where(labelled, torch.where(known, labels, 0.0), guess)
    return Targets(targets, (labelled | is_filled).expand_as(known), is_filled & ~known)


def belief_loss(
    kind: Labels, logits: Tensor, belief: Targets, weight: Tensor, weighed: Weighed
) -> Tensor:
    """Binary cross-entropy of several labels, or cross-entropy of one class an image.

    The mean runs over all entries, or images; those without a valid target count 0. ``weight``,
    (C,), multiplies what ``weighed`` says: the loss of a class's positives or of all its entries.
    ``mean`` is the order of FedLSM's public code: the mean over all entries, times the mean of
    weight and validity. There every entry trains, on the teacher's guess if need be.
    """
    if kind == "single":
        wanted = weight * belief.valid * belief.targets
        return -(wanted * F.logsigmoid(logits)).sum(1).mean()
    valid = belief.valid.to(weight.dtype)
    if weighed == "positives":
        return (elementwise_bce(logits, belief.targets, weight) * valid).mean()
    return weighted_mean(
        elementwise_bce(logits, belief.targets), weight * valid, by_entry=weighed == "entries"
    )


def weighted_mean(entries: Tensor, weights: Tensor, *, by_entry: bool) -> Tensor:
    """The mean of entries times weights, or else the mean entry times the mean weight."""
    return (entries * weights).mean() if by_entry else entries.mean() * weights.mean()


def beta_share(concentration: float, generator: torch.Generator) -> Tensor:
    """One draw from Beta(concentration, concentration), as the quotient of two gamma draws."""
    shape = torch.full((2,), concentration, dtype=torch.float64)  # in float32, 0 / 0 could come up
    draws = torch._standard_gamma(shape, generator=generator)
    return (draws[0] / draws.sum()).to(torch.float32)


def mixed(first: Tensor, second: Tensor, share: Tensor) -> Tensor:
    return share * first + (1 - share) * second


def mixed_belief(first: Targets, second: Targets, share: Tensor) -> Targets:
    """MixUp of two images' labels; valid only where both are."""
    return Targets(
        mixed(first.targets, second.targets, share),
        first.valid & second.valid,
        first.is_pseudo | second.is_pseudo,
    )
