"""Flexible federated learning (Tayebi Arasteh et al., Scientific Reports 2023): private heads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from fedquilt.core.errors import UserError
from fedquilt.core.payload import Update
from fedquilt.core.totals import Totals
from fedquilt.core.tree import Weights
from fedquilt.models.network import Layout
from fedquilt.training.averaging import WeightedAveraging, Weighting
from fedquilt.training.method import Local, Stage, State
from fedquilt.training.task import Task


@dataclass(frozen=True, kw_only=True)
class FlexibleFL(WeightedAveraging):
    """Average the backbone and keep heads private: clients need no class in common.

    Every client has its own model. Head rows of classes that it does not annotate keep their
    initial values, so their predictions are meaningless.

    The authors train the private heads further after the shared backbone: set ``shared_rounds``;
    in later rounds nothing is shared.
    """

    weighting: Weighting = "uniform"  # of clients, for everything that is shared
    shared_rounds: int | None = None  # rounds that train the backbone; left out: all

    also_broadcast: ClassVar[tuple[str, ...]] = ("first_head",)
    own_classes_only: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.shared_rounds is not None and self.shared_rounds < 1:
            raise UserError(f"method.shared_rounds must be at least 1, found {self.shared_rounds}")

    def stages(self, round_index: int) -> tuple[Stage, ...]:
        if not self._is_private(round_index):
            return super().stages(round_index)
        return (Stage(name="head", frozen=("backbone.",)),)

    def _is_private(self, round_index: int) -> bool:
        return self.shared_rounds is not None and round_index >= self.shared_rounds

    def shared(self, layout: Layout) -> Layout:
        return replace(layout, head=())

    def init_server(self, weights: Weights, task: Task, survey: Totals) -> State:
        head = {name: weights[name] for name in task.layout.head}
        return super().init_server(weights, task, survey) | {"first_head": head}

    def finish(self, local: Local, weights: Weights, steps: int) -> tuple[Update, State]:
        head = {name: weights[name] for name in local.layout.head}
        if self._is_private(local.round_index):
            weights = local.received["weights"]  # batch-norm statistics are not updated either
        return self.weights_update(local, weights), {**local.state, "head": head}

    def global_weights(self, server: State) -> Weights | None:
        return None

    def client_weights(self, received: State, state: State) -> Weights:
        head: Weights = state["head"] if "head" in state else received["first_head"]
        return {**received["weights"], **head}
