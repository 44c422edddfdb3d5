"""Ranking metrics for all classes at once: ROC-AUC and step-wise average precision."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fedquilt.metrics.entries import Entries, read_entries


class StepCurve(NamedTuple):
    """Counts at or above each distinct score of a class, highest first.

    Tied samples form one step, at the last of them; the other positions are ignored. Counts are
    integers, so the result does not depend on the order of samples.
    """

    is_step: Tensor  # (C, N) bool
    true_positives: Tensor  # (C, N) int64
    false_positives: Tensor  # (C, N) int64

    def roc_auc(self) -> Tensor:
        """(C,) float64: a tie counts half; NaN (0 / 0) without positives or without negatives."""
        tp, fp = self.true_positives, self.false_positives
        doubled = ((fp - self._before(fp)) * (tp + self._before(tp))).where(self.is_step, 0)
        return doubled.sum(dim=1).double() / (2 * _total(tp) * _total(fp)).double()

    def average_precision(self) -> Tensor:
        """(C,) float64: precision weighted by the gain in recall; NaN (0 / 0) without positives."""
        tp, fp = self.true_positives, self.false_positives
        precision = tp.double() / (tp + fp).clamp(min=1)  # 0 / 1 before the first known entry
        gained = (tp - self._before(tp)).where(self.is_step, 0)
        return (gained * precision).sum(dim=1) / _total(tp).double()

    def _before(self, counts: Tensor) -> Tensor:
        """Return the count at the previous step of each position; 0 before the first."""
        # Counts never decrease along a curve, so the largest step so far is the latest step.
        latest = counts.where(self.is_step, 0).cummax(dim=1).values
        return torch.cat([torch.zeros_like(latest[:, :1]), latest[:, :-1]], dim=1)


def step_curve(entries: Entries) -> StepCurve:
    # Entries that are not known stay in the curve; neither positive nor negative, they add 0.
    ordered, order = entries.scores.double().T.contiguous().sort(dim=1, descending=True)
    is_step = torch.ones_like(ordered, dtype=torch.bool)
    is_step[:, :-1] = ordered[:, :-1] != ordered[:, 1:]
    true_positives, false_positives = (
        kind.T.gather(1, order).cumsum(dim=1) for kind in (entries.positive, entries.negative)
    )
    return StepCurve(is_step, true_positives, false_positives)


def roc_auc(scores: Tensor, labels: Tensor, known: Tensor) -> Tensor:
    """(C,) float64: the probability that a positive scores above a negative; a tie counts half."""
    return step_curve(read_entries(scores, labels, known)).roc_auc()


def average_precision(scores: Tensor, labels: Tensor, known: Tensor) -> Tensor:
    """(C,) float64: step-wise, without interpolation."""
    return step_curve(read_entries(scores, labels, known)).average_precision()


def _total(counts: Tensor) -> Tensor:
    """Return the count at the end of each curve; 0 for a curve without samples."""
    return counts.amax(dim=1) if counts.shape[1] else counts.sum(dim=1)
