"""check_new_model(): a new global model must be finite and of a sane size to replace the old."""

from __future__ import annotations

import torch
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.core.tree import Tree, Weights, flatten
from fedquilt.training.method import State
from fedquilt.training.task import Task

MAX_GROWTH = 100.0  # of the norm of all trained weights, in one round


class RefusedModel(UserError):
    """Raised for a new model that is not kept; the model of the round before stays."""


def model_fault(task: Task, old: State, new: State) -> str | None:
    """Return what is wrong with a new state of the server, or None.

    What is not finite may stay so: a method may start with infinite values.
    """
    before = flatten(old)
    for path, leaf in flatten(new).items():
        if not is_finite(leaf) and (path not in before or is_finite(before[path])):
            return f"{path} is no longer finite"
    if "weights" not in old or "weights" not in new:
        return None
    return growth_fault(task, old["weights"], new["weights"])


def growth_fault(task: Task, old: Weights, new: Weights) -> str | None:
    """Return how far the trained weights have grown, if that is too far, or None."""
    buffers = frozenset(task.layout.buffers)
    norms = [
        trained_norm({name: leaf for name, leaf in weights.items() if name not in buffers})
        for weights in (old, new)
    ]
    largest = MAX_GROWTH * max(norms[0], 1.0)
    if norms[1] <= largest:
        return None
    return f"the norm of its weights went from {norms[0]:.4g} to {norms[1]:.4g}"


def trained_norm(weights: Tree) -> float:
    norms = [
        torch.linalg.vector_norm(leaf, dtype=torch.float64)
        for leaf in flatten(weights).values()
        if leaf.is_floating_point()
    ]
    return float(torch.linalg.vector_norm(torch.stack(norms))) if norms else 0.0


def is_finite(leaf: Tensor) -> bool:
    return not leaf.is_floating_point() or bool(torch.isfinite(leaf).all())


def check_new_model(task: Task, old: State, new: State, round_index: int, largest: str) -> None:
    """Raise RefusedModel, with the largest update in words, if the new state must not be kept."""
    fault = model_fault(task, old, new)
    if fault is not None:
        raise RefusedModel(
            f"round {round_index + 1} gave a model that cannot be right: {fault}; the model of "
            f"round {round_index} is kept. The largest update: {largest}. Lower "
            "method.training.lr if all clients diverge; if one client is wrong, bound it with "
            "bounds.max_norms or leave it out"
        )
