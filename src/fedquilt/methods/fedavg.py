"""FedAvg (McMahan et al., AISTATS 2017), as the partial-label papers use it for a baseline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedquilt.core.payload import Update
from fedquilt.core.totals import Totals
from fedquilt.core.tree import Weights
from fedquilt.data.batches import Batch
from fedquilt.data.client_data import ClientData
from fedquilt.losses.class_prior import PositiveWeight, positive_weight
from fedquilt.losses.cross_entropy import masked_bce
from fedquilt.training.aggregation import (
    HeadRows,
    Weighting,
    change_of,
    head_row_weights,
    mean_change,
    moved_buffers,
    weight_parts,
)
from fedquilt.training.method import Local, Method, State
from fedquilt.training.provenance import Provenance
from fedquilt.training.server_optimizer import ServerOptimizer
from fedquilt.training.task import Task


@dataclass(frozen=True, kw_only=True)
class FedAvg(Method):
    """Train locally, average the changes; a blank label is taken for a 0, as people do today."""

    unannotated: Literal["negative", "skip"] = "negative"  # what the loss makes of a blank label
    positive_weight: PositiveWeight = "inverse-prevalence"  # w_c, from annotated entries only
    positive_weight_cap: float | None = None  # the largest positive weight, if there is to be one
    weighting: Weighting = "samples"  # of clients, for everything but head rows
    head_rows: HeadRows = "all"  # whose head rows count: everybody's, or annotators', and by what
    server_step: ServerOptimizer = ServerOptimizer()  # what the server does with the mean change

    def init_server(self, weights: Weights, task: Task, survey: Totals) -> State:
        trainable = {name: weights[name] for name in task.layout.body + task.layout.head}
        velocity = self.server_step.init(trainable)
        return {"weights": weights} | ({"velocity": velocity} if velocity else {})

    def init_client(self, data: ClientData) -> State:
        weight = positive_weight(
            self.positive_weight,
            data.positive_counts(),
            data.annotated_counts(),
            self.positive_weight_cap,
        )
        return {"positive_weight": weight}

    def broadcast(self, server: State) -> State:
        return {"weights": server["weights"]}

    def expected_update(self, received: State, task: Task) -> Update:
        return weight_parts(received["weights"], task.layout, 0.0, torch.zeros(task.class_count))

    @property
    def provenance(self) -> Mapping[str, Provenance]:
        rows: dict[HeadRows, Provenance] = {"all": "images", "positives": "positives"}
        return {**super().provenance, "head": rows.get(self.head_rows, "annotated")}

    def loss(self, local: Local, batch: Batch) -> Tensor:
        return self.supervised_loss(local, local.model(batch.views[0]).logits, batch)

    def supervised_loss(self, local: Local, logits: Tensor, batch: Batch) -> Tensor:
        labels, known = self.supervision(batch)
        return masked_bce(logits, labels, known, local.state["positive_weight"])

    def supervision(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The labels the loss believes, and where."""
        if self.unannotated == "skip":
            return batch.labels, batch.known
        blank_is_zero = torch.where(batch.known, batch.labels, torch.zeros_like(batch.labels))
        return blank_is_zero, torch.ones_like(batch.known)

    def finish(self, local: Local, weights: Weights, steps: int) -> tuple[Update, State]:
        return self.weights_update(local, weights), local.state

    def weights_update(self, local: Local, weights: Weights) -> Update:
        weight = float(len(local.data)) if self.weighting == "samples" else 1.0
        return self.weighted_update(local, weights, weight)

    def weighted_update(self, local: Local, weights: Weights, weight: float) -> Update:
        """What is sent of a client that counts by ``weight``."""
        rows = head_row_weights(self.head_rows, weight, local.data)
        change = change_of(weights, local.received["weights"])
        return weight_parts(change, local.layout, weight, rows)

    def update(self, server: State, totals: Totals) -> State:
        return self.moved(server, mean_change(totals), moved_buffers(server["weights"], totals))

    def moved(self, server: State, change: Weights, buffers: Weights) -> State:
        """The server's state after a change of the trainable weights, with these new buffers."""
        trainable = {name: server["weights"][name] for name in change}
        new, velocity = self.server_step.apply(trainable, change, server.get("velocity", {}))
        new |= buffers
        weights = {name: new[name] for name in server["weights"]}  # in the order they came
        return {"weights": weights} | ({"velocity": velocity} if velocity else {})
