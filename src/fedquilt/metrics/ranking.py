"""Metrics of the scores' order, all classes at once: ROC-AUC and step-wise average precision."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fedquilt.metrics.entries import Entries, read_entries


class StepCurve(NamedTuple):
    """Counts at or above each distinct score of a class, highest first.

    Tied samples form one step, held by the last of them; the other places carry no weight. Counts
    stay integers, so the order of the samples cannot change a bit of the result.
    """

    is_step: Tensor  # (C, N) bool
    true_positives: Tensor  # (C, N) int64
    false_positives: Tensor  # (C, N) int64

    def roc_auc(self) -> Tensor:
        """(C,) float64: a tie counts half; NaN (0 / 0) for a class of one kind only."""
        risen, run = self.true_positives, self.false_positives
        risen_before, run_before = self._before(risen), self._before(run)
        doubled = ((run - run_before) * (risen + risen_before)).where(self.is_step, 0).sum(dim=1)
        return doubled.double() / (2 * _total(risen) * _total(run)).double()

    def average_precision(self) -> Tensor:
        """(C,) float64: precision weighted by the rise of recall; NaN (0 / 0) without positives."""
        risen, run = self.true_positives, self.false_positives
        precision = risen.double() / (risen + run).clamp(min=1)  # nothing known so far: 0 / 1
        gained = (risen - self._before(risen)).where(self.is_step, 0)
        return (gained * precision).sum(dim=1) / _total(risen).double()

    def _before(self, counts: Tensor) -> Tensor:
        """The count at the step before each place, which is 0 before the first."""
        # Counts never fall along a curve, so the largest step so far is the latest step.
        latest = counts.where(self.is_step, 0).cummax(dim=1).values
        return torch.cat([torch.zeros_like(latest[:, :1]), latest[:, :-1]], dim=1)


def step_curve(entries: Entries) -> StepCurve:
    # Entries that are not known keep their places: neither positive nor negative, they add nothing.
    ordered, order = entries.scores.double().T.contiguous().sort(dim=1, descending=True)
    is_step = torch.ones_like(ordered, dtype=torch.bool)
    is_step[:, :-1] = ordered[:, :-1] != ordered[:, 1:]
    true_positives, false_positives = (
        kind.T.gather(1, order).cumsum(dim=1) for kind in (entries.positive, entries.negative)
    )
    return StepCurve(is_step, true_positives, false_positives)


def roc_auc(scores: Tensor, labels: Tensor, known: Tensor) -> Tensor:
    """(C,) float64: how probably a positive scores above a negative, a tie counting half."""
    return step_curve(read_entries(scores, labels, known)).roc_auc()


def average_precision(scores: Tensor, labels: Tensor, known: Tensor) -> Tensor:
    """(C,) float64: step-wise, without interpolation."""
    return step_curve(read_entries(scores, labels, known)).average_precision()


def _total(counts: Tensor) -> Tensor:
    """The count at the end of each curve, also of one without samples."""
    return counts.amax(dim=1) if counts.shape[1] else counts.sum(dim=1)
