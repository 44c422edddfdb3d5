"""Parts of an update, declared once: kind, shape, weight, first value and provenance.

A method lists its parts by name (:attr:`Method.parts`). Their place in the server's state and in
the broadcast, the update that the server expects, their provenance and how the server takes in a
round's totals follow from the declaration.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch

from fedquilt.core.payload import Mean, Sum
from fedquilt.core.totals import Totals
from fedquilt.core.tree import Tree, Weights, add
from fedquilt.training.provenance import Provenance
from fedquilt.training.task import Task

Axis: TypeAlias = int | Literal["classes", "features"]


@dataclass(frozen=True, kw_only=True)
class MeanPart:
    """Averaged over the cohort; where no client has weight, the server's last mean stays."""

    shape: tuple[Axis, ...] | Literal["head"]  # "head": one tensor per weight of the head
    weight: tuple[Axis, ...] = ()  # the leading axes whose entries have a weight each
    provenance: Provenance
    start: float | None = 0.0  # the server's first value; None: it is neither kept nor broadcast

    def first_value(self, task: Task, weights: Weights) -> Tree:
        start = self.start or 0.0
        if self.shape == "head":
            return {name: torch.full_like(weights[name], start) for name in task.layout.head}
        return torch.full(_lengths(self.shape, task), start)

    def expected(self, task: Task, weights: Weights) -> Mean:
        return Mean(self.first_value(task, weights), torch.zeros(_lengths(self.weight, task)))

    def updated(self, name: str, old: Tree, totals: Totals) -> Tree:
        mean: Tree = totals.mean(name, otherwise=old)
        return mean


@dataclass(frozen=True, kw_only=True)
class SumPart:
    """One tensor per trainable weight; the server adds the cohort's sum to what it has."""

    provenance: Provenance
    dtype: torch.dtype | None = None  # that of the weights, if left out
    over_population: bool = False  # divide the sum by the number of all clients
    start: float | None = 0.0  # the server's first value; None: it is neither kept nor broadcast

    def first_value(self, task: Task, weights: Weights) -> Tree:
        start, trainable = self.start or 0.0, task.layout.body + task.layout.head
        return {
            name: torch.full_like(weights[name], start, dtype=self.dtype)
            for name in trainable
            if name in weights
        }

    def expected(self, task: Task, weights: Weights) -> Sum:
        return Sum(self.first_value(task, weights))

    def updated(self, name: str, old: Tree, totals: Totals) -> Tree:
        new: Tree = add(old, totals.sum(name), 1 / totals.population if self.over_population else 1)
        return new


DeclaredPart: TypeAlias = MeanPart | SumPart


def per_class_mean(provenance: Provenance, *, start: float | None = 0.0) -> MeanPart:
    """A number per class, each with its own weight."""
    return MeanPart(shape=("classes",), weight=("classes",), provenance=provenance, start=start)


def head_rows_mean(provenance: Provenance) -> MeanPart:
    """The head's change once more, with other weights per class; it is used up in the round."""
    return MeanPart(shape="head", weight=("classes",), provenance=provenance, start=None)


def _lengths(axes: Iterable[Axis], task: Task) -> tuple[int, ...]:
    def length(axis: Axis) -> int:
        if isinstance(axis, int):
            return axis
        return task.class_count if axis == "classes" else task.feature_count

    return tuple(length(axis) for axis in axes)
