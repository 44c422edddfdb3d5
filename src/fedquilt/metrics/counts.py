"""Metrics of thresholded predictions: confusion counts per class and their ratios."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.metrics.entries import Entries, read_entries

# "largest": the class with the largest probability, for images of one class each
Threshold: TypeAlias = float | Sequence[float] | Tensor | Literal["largest"]


@dataclass(frozen=True)
class Counts:
    """Known entries by truth and prediction; a ratio is NaN (0 / 0) where it is undefined."""

    true_positives: Tensor  # (C,) int64, like the others
    false_positives: Tensor
    false_negatives: Tensor
    true_negatives: Tensor

    @property
    def positives(self) -> Tensor:
        return self.true_positives + self.false_negatives

    @property
    def negatives(self) -> Tensor:
        return self.true_negatives + self.false_positives

    def precision(self) -> Tensor:
        return _ratio(self.true_positives, self.true_positives + self.false_positives)

    def recall(self) -> Tensor:
        return _ratio(self.true_positives, self.positives)

    def specificity(self) -> Tensor:
        return _ratio(self.true_negatives, self.negatives)

    def balanced_accuracy(self) -> Tensor:
        return (self.recall() + self.specificity()) / 2

    def f1(self) -> Tensor:
        doubled = 2 * self.true_positives
        return _ratio(doubled, doubled + self.false_positives + self.false_negatives)

    def hamming(self) -> Tensor:
        """Share of known entries that were predicted wrongly."""
        wrong = self.false_positives + self.false_negatives
        return _ratio(wrong, self.positives + self.negatives)

    def pooled(self) -> Counts:
        """Return the sums over classes, for the overall (micro) metrics."""
        return Counts(
            self.true_positives.sum(),
            self.false_positives.sum(),
            self.false_negatives.sum(),
            self.true_negatives.sum(),
        )


def count(
    probabilities: Tensor,
    labels: Tensor,
    known: Tensor,
    *,
    threshold: Threshold = 0.5,
    strict: bool = False,
) -> Counts:
    """Count predictions against the known labels, per class.

    Args:
        threshold: one number, or one per class.
        strict: predict a class only above its threshold, not at it.
    """
    entries = read_entries(probabilities, labels, known)
    return count_predictions(entries, predict(entries.scores, threshold, strict))


def predict(scores: Tensor, threshold: Threshold, strict: bool) -> Tensor:
    """(N, C) bool. The threshold is rounded to the scores' dtype, so float32 0.3 is at 0.3.

    Of equal largest scores, the first class is predicted.
    """
    return decide_by(scores, threshold, strict)(slice(None), scores)


def decide_by(
    scores: Tensor, threshold: Threshold, strict: bool
) -> Callable[[slice, Tensor], Tensor]:
    """Return what :func:`predict` does for some of the classes and their scores."""
    if isinstance(threshold, str):
        winner = scores.argmax(1, keepdim=True)
        classes = torch.arange(scores.shape[1], device=scores.device)
        return lambda columns, _scores: winner == classes[columns]
    limit = torch.as_tensor(threshold, dtype=scores.dtype, device=scores.device)
    if limit.shape not in ((), scores.shape[1:]) or not limit.isfinite().all():
        raise UserError(
            f"threshold must be one finite number, or one for each of the {scores.shape[1]} "
            f"classes; found {threshold!r}"
        )
    limits, compare = limit.expand(scores.shape[1]), torch.gt if strict else torch.ge
    return lambda columns, some: compare(some, limits[columns])


def count_predictions(entries: Entries, predicted: Tensor) -> Counts:
    return Counts(
        true_positives=_by_class(entries.positive & predicted),
        false_positives=_by_class(entries.negative & predicted),
        false_negatives=_by_class(entries.positive & ~predicted),
        true_negatives=_by_class(entries.negative & ~predicted),
    )


def _by_class(entries: Tensor) -> Tensor:
    """(C,) int64: how many are True. A sum would take 8 bytes of memory for each."""
    return torch.stack([column.count_nonzero() for column in entries.T.contiguous()])


def joined(counts: Sequence[Counts]) -> Counts:
    """Return the counts of all classes, from those of some classes each."""
    columns = {
        each.name: [getattr(piece, each.name) for piece in counts] for each in fields(Counts)
    }
    return Counts(**{name: torch.cat(pieces) for name, pieces in columns.items()})


@dataclass
class WholeImages:
    """Which samples have known entries, and a wrong one among them, in the classes so far."""

    has_known: Tensor  # (N,) bool
    has_wrong: Tensor

    @classmethod
    def of(cls, scores: Tensor) -> WholeImages:
        nothing = torch.zeros(len(scores), dtype=torch.bool, device=scores.device)
        return cls(nothing, nothing)

    def add(self, entries: Entries, predicted: Tensor) -> None:
        wrong = (entries.positive & ~predicted) | (entries.negative & predicted)
        self.has_wrong = self.has_wrong | wrong.any(dim=1)
        self.has_known = self.has_known | entries.known.any(dim=1)

    def subset_accuracy(self) -> Tensor:
        """Share of samples without a wrong entry, among samples with known entries."""
        return _ratio((self.has_known & ~self.has_wrong).sum(), self.has_known.sum())


def _ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    return numerator.double() / denominator.double()
