"""Parts of an update, declared once: kind, shape, weight, first value and provenance.

A method lists its parts by name (:attr:`Method.parts`). From the declaration follow the server's
state, the broadcast, the expected update, the provenance and the server's update after a round.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from fedquilt.core.payload import Mean, Sum
from fedquilt.core.totals import Totals
from fedquilt.core.tree import Tree, Weights, add
from fedquilt.training.contribution import Contribution
from fedquilt.training.provenance import Provenance
from fedquilt.training.task import Task

Axis: TypeAlias = int | Literal["classes", "features"]
DEFAULT_RANGE = 2.0**4  # of a change of weights, or of a mean of shares
FEATURE_RANGE = 2.0**10  # of features, which nothing bounds


@dataclass(frozen=True, kw_only=True)
class MeanPart:
    """Averaged over the cohort; entries without any weight keep the server's last mean."""

    shape: tuple[Axis, ...] | Literal["head"]  # "head": one tensor per weight of the head
    weight: tuple[Axis, ...] = ()  # the leading axes with a weight per entry
    provenance: Provenance
    start: float | None = 0.0  # the server's first value; None: neither kept nor broadcast
    largest: float = DEFAULT_RANGE  # no value is larger: the range of its fixed-point integers
    contribution: Contribution | None = None  # of one image, if noise can protect the part

    def first_value(self, task: Task, weights: Weights) -> Tree:
        start = self.start or 0.0
        if self.shape == "head":
            return {name: torch.full_like(weights[name], start) for name in task.layout.head}
        return torch.full(_lengths(self.shape, task), start)

    def expected(self, task: Task, weights: Weights) -> Mean:
        return Mean(self.first_value(task, weights), torch.zeros(_lengths(self.weight, task)))

    def nothing(self, received: Tensor) -> Mean:
        """What a client without a value sends; it has no weight."""
        weight = torch.zeros(received.shape[: len(self.weight)], device=received.device)
        return Mean(torch.zeros_like(received), weight)

    def updated(self, name: str, old: Tree, totals: Totals) -> Tree:
        mean: Tree = totals.mean(name, otherwise=old)
        return mean


@dataclass(frozen=True, kw_only=True)
class SumPart:
    """One tensor per trainable weight; the server adds the cohort's sum to its value."""

    provenance: Provenance
    dtype: torch.dtype | None = None  # the dtype of the weights, if left out
    over_population: bool = False  # divide the sum by the number of all clients
    start: float = 0.0  # the server's first value
    largest: float = DEFAULT_RANGE  # no value is larger: the range of its fixed-point integers
    contribution: Contribution | None = None  # of one image, if noise can protect the part

    def first_value(self, task: Task, weights: Weights) -> Tree:
        return {
            name: torch.full_like(weights[name], self.start, dtype=self.dtype)
            for name in task.layout.body + task.layout.head
            if name in weights
        }

    def expected(self, task: Task, weights: Weights) -> Sum:
        return Sum(self.first_value(task, weights))

    def updated(self, name: str, old: Tree, totals: Totals) -> Tree:
        new: Tree = add(old, totals.sum(name), 1 / totals.population if self.over_population else 1)
        return new


DeclaredPart: TypeAlias = MeanPart | SumPart


def per_class_mean(
    provenance: Provenance,
    *axes: Axis,
    start: float | None = 0.0,
    contribution: Contribution | None = None,
) -> MeanPart:
    """A number per class, or a tensor with further axes; each class has its own weight."""
    return MeanPart(
        shape=("classes", *axes),
        weight=("classes",),
        provenance=provenance,
        start=start,
        contribution=contribution,
    )


def per_side_mean(axis: Axis) -> MeanPart:
    """A vector for the absent and one for the present images of each class, weighted apart."""
    return MeanPart(
        shape=("classes", 2, axis),
        weight=("classes", 2),
        provenance="sides",
        largest=FEATURE_RANGE,
    )


def head_rows_mean(provenance: Provenance) -> MeanPart:
    """A second copy of the head's change with other weights per class; it is not kept."""
    return MeanPart(shape="head", weight=("classes",), provenance=provenance, start=None)


def _lengths(axes: Iterable[Axis], task: Task) -> tuple[int, ...]:
    def length(axis: Axis) -> int:
        if isinstance(axis, int):
            return axis
        return task.class_count if axis == "classes" else task.feature_count

    return tuple(length(axis) for axis in axes)
