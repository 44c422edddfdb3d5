"""Soft targets: true labels, confident teacher predictions where they are missing, and MixUp."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.data.batches import Batch
from fedquilt.losses.cross_entropy import elementwise_bce
from fedquilt.losses.pseudo_labels import NO_TAG

Labels = Literal["multi", "single"]  # several labels per image, or one class per image
Weighed = Literal["positives", "entries", "mean"]  # what the class weights multiply


class Targets(NamedTuple):
    """Targets of a batch, all (B, C); an invalid target is the teacher's unconfident guess."""

    targets: Tensor  # in 0..1
    valid: Tensor  # bool: the target may be trained on
    is_pseudo: Tensor  # bool: the target is a pseudo-label of the teacher

    def positive_counts(self) -> Tensor:
        """Valid positives per class, true labels and pseudo-labels."""
        return ((self.targets == 1) & self.valid).sum(0)

    def tags(self) -> Tensor:
        """The pseudo-labels as tags, (B, C) int8."""
        return torch.where(self.is_pseudo, self.targets.to(torch.int8), NO_TAG)

    def mixed(self, other: Targets, share: Tensor) -> Targets:
        """MixUp with the targets of another batch; valid only where both are."""
        return Targets(
            mix(self.targets, other.targets, share),
            self.valid & other.valid,
            self.is_pseudo | other.is_pseudo,
        )

    def loss(self, kind: Labels, logits: Tensor, weight: Tensor, weighed: Weighed) -> Tensor:
        """Binary cross-entropy for ``multi``, cross-entropy for ``single``, of the logits.

        The mean is over all entries, or images; those without a valid target count as 0.

        Args:
            weight: (C,) class weights.
            weighed: multiply the loss of a class's ``positives`` or of all its ``entries``;
                ``mean`` follows FedLSM's public code: the mean loss of all entries times the mean
                of weight and validity, so that invalid targets are trained on too. Has no effect
                for ``single``.
        """
        if kind == "single":
            wanted = weight * self.valid * self.targets
            return -(wanted * F.logsigmoid(logits)).sum(1).mean()
        valid = self.valid.to(weight.dtype)
        if weighed == "positives":
            return (elementwise_bce(logits, self.targets, weight) * valid).mean()
        return weighted_mean(
            elementwise_bce(logits, self.targets), weight * valid, by_entry=weighed == "entries"
        )


def require_rising(method: str, *thresholds: tuple[float, float]) -> None:
    """Raise UserError unless each pair of thresholds rises within 0..1."""
    for low, high in thresholds:
        if not 0 <= low < high <= 1:
            raise UserError(f"{method}'s thresholds must rise within 0..1, found {low}, {high}")


def mixup_loss(
    kind: Labels,
    logits: Tensor,
    targets: Sequence[Targets],
    share: Tensor | None,
    weight: Tensor,
    weighed: Weighed,
    strength: float,
) -> Tensor:
    """The loss of plain images, and ``strength`` times that of mixtures of two other batches.

    Args:
        logits: of the plain images, then of the mixtures, if there are any.
        targets: of the plain images, then of the two batches that were mixed by ``share``.
        weight: (C,) class weights of the plain images; mixtures have none.
        weighed: see :meth:`Targets.loss`.
    """
    plain, *beside = targets
    of_plain, of_mixtures = logits.tensor_split([len(plain.targets)])
    supervised = plain.loss(kind, of_plain, weight, weighed)
    if not beside or share is None:
        return supervised
    mixture = beside[0].mixed(beside[1], share)
    mixing = mixture.loss(kind, of_mixtures, torch.ones_like(weight), weighed)
    return supervised + strength * mixing


def make_targets(
    kind: Labels, labels: Tensor, known: Tensor, teacher: Tensor, thresholds: tuple[float, float]
) -> Targets:
    """Combine true labels with pseudo-labels from the teacher's confident logits.

    Args:
        kind: for ``single`` the logits are the log-odds of the softmax head.
        thresholds: probabilities, low and high.
    """
    if kind == "single":
        return _single_label_targets(labels, known, teacher.detach(), thresholds[1])
    return _multi_label_targets(labels, known, teacher.detach(), *thresholds)


def targets_of_batches(
    kind: Labels,
    batches: Sequence[Batch],
    teacher: Tensor,
    limits: Sequence[tuple[float, float]],
) -> list[Targets]:
    """The targets of each batch by its own thresholds; ``teacher`` has the logits of all."""
    logits = teacher.split([len(each.rows) for each in batches])
    return [
        make_targets(kind, each.labels, each.known, own, thresholds)
        for each, own, thresholds in zip(batches, logits, limits)
    ]


def _multi_label_targets(
    labels: Tensor, known: Tensor, teacher: Tensor, low: float, high: float
) -> Targets:
    """A missing label is 1 at a probability of ``high`` or above, and 0 at ``low`` or below."""
    probability = torch.sigmoid(teacher.float())
    present = probability >= high
    is_pseudo = (present | (probability <= low)) & ~known
    guess = torch.where(is_pseudo, present.to(probability.dtype), probability)
    return Targets(torch.where(known, labels, guess), known | is_pseudo, is_pseudo)


def _single_label_targets(labels: Tensor, known: Tensor, teacher: Tensor, high: float) -> Targets:
    """Assign an unlabelled image to its most likely class if that has a probability of ``high``.

    If that class is annotated as absent, the image has no valid target.
    """
    share, winner = torch.sigmoid(teacher.float()).max(1, keepdim=True)
    labelled = (known & (labels == 1)).any(1, keepdim=True)
    is_filled = ~labelled & (share >= high) & ~known.gather(1, winner)
    guess = torch.zeros_like(labels).scatter(1, winner, 1.0) * is_filled
    targets = torch.where(labelled, torch.where(known, labels, 0.0), guess)
    return Targets(targets, (labelled | is_filled).expand_as(known), is_filled & ~known)


def weighted_mean(entries: Tensor, weights: Tensor, *, by_entry: bool) -> Tensor:
    """Mean of entries times weights; with ``by_entry=False``, mean entry times mean weight."""
    return (entries * weights).mean() if by_entry else entries.mean() * weights.mean()


def beta_share(concentration: float, generator: torch.Generator) -> Tensor:
    """Draw from Beta(concentration, concentration), as a ratio of two gamma draws."""
    shape = torch.full((2,), concentration, dtype=torch.float64)  # float32 could give 0 / 0
    draws = torch._standard_gamma(shape, generator=generator)
    return (draws[0] / draws.sum()).to(torch.float32)


def mix(first: Tensor, second: Tensor, share: Tensor) -> Tensor:
    return share * first + (1 - share) * second
