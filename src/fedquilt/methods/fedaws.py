"""FedAwS (Yu et al., ICML 2020): federated averaging with spread-out, for positives only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.core.totals import Totals
from fedquilt.core.tree import Weights
from fedquilt.data.batches import Batch
from fedquilt.losses.class_prior import PositiveWeight
from fedquilt.losses.spread_out import positive_hinge, row_penalty
from fedquilt.models.class_rows import arrange_rows
from fedquilt.models.heads.sphere import on_sphere, scores_of
from fedquilt.models.spec import ModelSpec
from fedquilt.training import averaging
from fedquilt.training.method import Local, State
from fedquilt.training.own_rows import ROWS, OwnRowsAveraging
from fedquilt.training.task import Task


@dataclass(frozen=True, kw_only=True)
class FedAwS(OwnRowsAveraging):
    """Clients pull features towards the rows of their own classes; the server spreads the rows.

    A client learns from annotated positives only; ``unannotated`` has no effect. It receives only
    the rows of classes it has positives of, which it reports to the server once. Without negatives
    all rows would collapse, so after every round the server pushes rows that are close apart.

    The rows of several clients for a class are averaged; a class without positives takes no part.
    The server's step size is ours. Not implemented: spreading a random subset of classes. Use many
    rounds of few steps: over whole epochs a client turns all features towards its own row.
    """

    positive_weight: PositiveWeight = "none"  # w_c, from annotated entries only
    margin: float = 0.9  # a positive whose cosine to its row is above has no loss
    strength: float = 10.0  # lambda: weight of the server's spread-out penalty
    spread_lr: float = 0.01  # eta: learning rate of the server's gradient steps
    spread_steps: int = 1  # gradient steps that spread the rows, after every round
    distance: float = 1.0  # nu: pairs at this distance, 1 - cosine, or more are not pushed apart
    nearest: int | None = None  # k: push each row off its k nearest only, at any distance

    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "mining": {"nearest": 10},  # as in the paper's experiments
        "positives-only": {"strength": 0.0},  # B1 of the paper
        "random-rows": {"fixed_rows": True},  # B2
    }

    def __post_init__(self) -> None:
        if self.nearest is not None and self.nearest < 1:
            raise UserError(f"method.nearest must be positive or left out, found {self.nearest}")

    def model_spec(self, wanted: ModelSpec) -> ModelSpec:
        return replace(wanted, head="cosine")

    def init_server(self, weights: Weights, task: Task, survey: Totals) -> State:
        together = torch.zeros(task.class_count, task.class_count)
        return super().init_server(weights, task, survey) | {"together": together}

    def loss(self, local: Local, batch: Batch) -> Tensor:
        scores = scores_of(local.model(batch.views[0]).logits)
        positives = batch.known & (batch.labels == 1)
        return positive_hinge(scores, positives, self.margin, self.class_weight(local))

    def after_step(self, local: Local, weights: Weights) -> State:
        if not self.fixed_rows:
            weights[ROWS].copy_(on_sphere(weights[ROWS]))
        return local.state

    def update(self, server: State, totals: Totals) -> State:
        old = server["weights"]
        change = {ROWS: torch.zeros_like(old[ROWS])} | averaging.mean_change(totals)
        new = self.moved(server, change, averaging.moved_buffers(old, totals))
        if not self.fixed_rows:
            rows, rate = on_sphere(new["weights"][ROWS]), self.strength * self.spread_lr
            new["weights"][ROWS] = self.arranged(rows, server, rate, self.spread_steps)
        return new

    def arranged(self, rows: Tensor, server: State, rate: float, steps: int) -> Tensor:
        """The rows after gradient steps on the penalty for being close."""
        seen = torch.stack(list(server["owned"].values())).any(0)
        penalty = partial(row_penalty, distance=self.distance, nearest=self.nearest)
        return arrange_rows(rows, seen, server["together"], penalty, rate, steps)
