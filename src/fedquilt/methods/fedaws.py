"""FedAwS (Yu et al., ICML 2020): federated averaging with spread-out, for positives only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.core.payload import Gather, Update
from fedquilt.core.totals import Totals
from fedquilt.core.tree import Weights, as_branch, without
from fedquilt.data.batches import Batch, Pool
from fedquilt.data.client_data import ClientData
from fedquilt.losses.class_prior import PositiveWeight
from fedquilt.losses.spread_out import positive_hinge, row_penalty
from fedquilt.models.class_rows import arrange_rows, own_rows, scatter_rows
from fedquilt.models.heads.sphere import on_sphere, scores_of
from fedquilt.models.network import Layout
from fedquilt.models.spec import ModelSpec
from fedquilt.training import averaging
from fedquilt.training.averaging import HeadRows, WeightedAveraging, Weighting, or_negligible
from fedquilt.training.method import Local, Stage, State
from fedquilt.training.provenance import Provenance
from fedquilt.training.task import Task

ROWS = "head.weight"


@dataclass(frozen=True, kw_only=True)
class FedAwS(WeightedAveraging):
    """Clients pull features towards the rows of their own classes; the server spreads the rows.

    A client learns from annotated positives only; ``unannotated`` has no effect. It receives only
    the rows of classes it has positives of, which it reports to the server once. Without negatives
    all rows would collapse, so after every round the server pushes rows that are close apart.

    The rows of several clients for a class are averaged; a class without positives takes no part.
    The server's step size is ours. Not implemented: spreading a random subset of classes. Use many
    rounds of few steps: over whole epochs a client turns all features towards its own row.
    """

    positive_weight: PositiveWeight = "none"  # w_c, from annotated entries only
    weighting: Weighting = "uniform"  # of clients with positives, for everything but rows
    head_rows: HeadRows = "positives"  # weight of clients with positives of a class in its row
    margin: float = 0.9  # a positive whose cosine to its row is above has no loss
    strength: float = 10.0  # lambda: weight of the server's spread-out penalty
    spread_lr: float = 0.01  # eta: learning rate of the server's gradient steps
    spread_steps: int = 1  # gradient steps that spread the rows, after every round
    distance: float = 1.0  # nu: pairs at this distance, 1 - cosine, or more are not pushed apart
    nearest: int | None = None  # k: push each row off its k nearest only, at any distance
    fixed_rows: bool = False  # rows keep their first values; clients send none

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

    def survey(self, data: ClientData) -> Update:
        return {**super().survey(data), "owned": Gather(data.positive_counts() > 0)}

    @property
    def provenance(self) -> Mapping[str, Provenance]:
        whole: dict[str, Provenance] = dict.fromkeys(("body", "buffers"), "any positive")
        return {**super().provenance, **whole, "head": "positives", "owned": "positives"}

    def init_server(self, weights: Weights, task: Task, survey: Totals) -> State:
        owned = {as_branch(name): mask for name, mask in survey.each("owned").items()}
        together = torch.zeros(task.class_count, task.class_count)
        return super().init_server(weights, task, survey) | {"owned": owned, "together": together}

    def broadcast(self, server: State) -> State:
        own = own_rows(server["weights"][ROWS], server["owned"])
        return {
            **super().broadcast(server),
            "weights": without(server["weights"], ROWS),
            "own": own,
        }

    def client_weights(self, received: State, state: State) -> Weights:
        return {**received["weights"], ROWS: scatter_rows(**received["own"])}

    def stages(self, round_index: int) -> tuple[Stage, ...]:
        return (Stage(frozen=("head.",) if self.fixed_rows else ()),)

    def pools(self, local: Local) -> tuple[Pool, ...]:
        (pool,) = super().pools(local)
        rows = local.data.rows_with_positives
        return (replace(pool, rows=rows) if len(rows) else pool,)

    def loss(self, local: Local, batch: Batch) -> Tensor:
        scores = scores_of(local.model(batch.views[0]).logits)
        positives = batch.known & (batch.labels == 1)
        return positive_hinge(scores, positives, self.margin, self.class_weight(local))

    def after_step(self, local: Local, weights: Weights) -> State:
        if not self.fixed_rows:
            weights[ROWS].copy_(on_sphere(weights[ROWS]))
        return local.state

    def expected_update(self, received: State, task: Task) -> Update:
        rows = torch.zeros(task.class_count, received["own"]["rows"].shape[1])
        whole, nothing = {**received["weights"], ROWS: rows}, torch.zeros(task.class_count)
        return averaging.weight_parts(whole, self._sent(task.layout), 0.0, nothing)

    def finish(self, local: Local, weights: Weights, steps: int) -> tuple[Update, State]:
        images, owned = len(local.data.rows_with_positives), local.received["own"]["classes"]
        weight = float(images if self.weighting == "samples" else images > 0)
        by_row = averaging.head_row_weights(self.head_rows, weight, local.data)
        each = or_negligible(weight, 1.0), by_row.to(owned.device) * owned
        change = averaging.change_of(weights, self.initial_weights(local))
        return averaging.weight_parts(change, self._sent(local.layout), *each), local.state

    def _sent(self, layout: Layout) -> Layout:
        return replace(layout, head=()) if self.fixed_rows else layout

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
