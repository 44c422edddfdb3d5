"""Local only: the lower bound, each client trains alone on its own images and labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedquilt.core.payload import Update
from fedquilt.core.totals import Totals
from fedquilt.core.tree import Weights
from fedquilt.training.averaging import WeightedAveraging
from fedquilt.training.method import Local, State
from fedquilt.training.task import Task


@dataclass(frozen=True, kw_only=True)
class LocalOnly(WeightedAveraging):
    """Every client continues from its own last weights; no weights are exchanged.

    Head rows of classes that a client does not annotate keep their initial values.
    """

    own_classes_only: ClassVar[bool] = True

    def expected_update(self, received: State, task: Task) -> Update:
        return {}

    def finish(self, local: Local, weights: Weights, steps: int) -> tuple[Update, State]:
        return {}, {**local.state, "weights": weights}

    def update(self, server: State, totals: Totals) -> State:
        return server

    def global_weights(self, server: State) -> Weights | None:
        return None

    def client_weights(self, received: State, state: State) -> Weights:
        weights: Weights = state["weights"] if "weights" in state else received["weights"]
        return weights
