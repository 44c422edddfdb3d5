"""Fixed buffers, such as the text vectors of labels: every client can build them itself."""

from __future__ import annotations

from collections.abc import Mapping

from fedquilt.core.tree import without
from fedquilt.training.method import State
from fedquilt.training.task import Task


def without_fixed(payload: State, task: Task) -> State:
    """Return the broadcast as it travels: without the buffers that are not sent."""
    weights = payload.get("weights")
    if not task.layout.fixed or not isinstance(weights, Mapping):
        return payload
    return {**payload, "weights": without(weights, *task.layout.fixed)}


def with_fixed(payload: State, task: Task) -> State:
    """Return the broadcast with the buffers that this client has built with its network."""
    weights = payload.get("weights")
    if not task.layout.fixed or not isinstance(weights, Mapping):
        return payload
    return {**payload, "weights": {**weights, **task.fixed_buffers}}
