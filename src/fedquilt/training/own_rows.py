"""Class rows that a client receives only for classes it has positives of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from fedquilt.core.payload import Gather, Update
from fedquilt.core.totals import Totals
from fedquilt.core.tree import Weights, as_branch, without
from fedquilt.data.batches import Pool
from fedquilt.data.client_data import ClientData
from fedquilt.models.class_rows import own_rows, scatter_rows
from fedquilt.models.network import Layout
from fedquilt.training.averaging import (
    HeadRows,
    WeightedAveraging,
    Weighting,
    change_of,
    head_row_weights,
    or_negligible,
    weight_parts,
)
from fedquilt.training.method import Local, Stage, State
from fedquilt.training.provenance import Provenance
from fedquilt.training.task import Task

ROWS = "head.weight"


@dataclass(frozen=True, kw_only=True)
class OwnRowsAveraging(WeightedAveraging):
    """The base of methods whose clients learn from annotated positives only.

    A client reports once which classes it has positives of, and receives only the rows of these
    classes. Its images without positives are not trained on; without any, it has no weight.
    """

    weighting: Weighting = "uniform"  # of clients with positives, for everything but rows
    head_rows: HeadRows = "positives"  # weight of clients with positives of a class in its row
    fixed_rows: bool = False  # rows keep their first values; clients send none

    def survey(self, data: ClientData) -> Update:
        return {**super().survey(data), "owned": Gather(data.positive_counts() > 0)}

    @property
    def provenance(self) -> Mapping[str, Provenance]:
        whole: dict[str, Provenance] = dict.fromkeys(("body", "buffers"), "any positive")
        return {**super().provenance, **whole, "head": "positives", "owned": "positives"}

    def init_server(self, weights: Weights, task: Task, survey: Totals) -> State:
        owned = {as_branch(name): mask for name, mask in survey.each("owned").items()}
        return super().init_server(weights, task, survey) | {"owned": owned}

    def broadcast(self, server: State) -> State:
        weights = server["weights"]
        others, own = without(weights, ROWS), own_rows(weights[ROWS], server["owned"])
        return {**super().broadcast(server), "weights": others, "own": own}

    def client_weights(self, received: State, state: State) -> Weights:
        return {**received["weights"], ROWS: scatter_rows(**received["own"])}

    def stages(self, round_index: int) -> tuple[Stage, ...]:
        return (Stage(frozen=("head.",) if self.fixed_rows else ()),)

    def pools(self, local: Local) -> tuple[Pool, ...]:
        (pool,) = super().pools(local)
        rows = local.data.rows_with_positives
        return (replace(pool, rows=rows) if len(rows) else pool,)

    def expected_update(self, received: State, task: Task) -> Update:
        rows = torch.zeros(task.class_count, received["own"]["rows"].shape[1])
        whole, nothing = {**received["weights"], ROWS: rows}, torch.zeros(task.class_count)
        return weight_parts(whole, self._sent(task.layout), 0.0, nothing)

    def finish(self, local: Local, weights: Weights, steps: int) -> tuple[Update, State]:
        images, owned = len(local.data.rows_with_positives), local.received["own"]["classes"]
        weight = float(images if self.weighting == "samples" else images > 0)
        by_row = head_row_weights(self.head_rows, weight, local.data)
        each = or_negligible(weight, 1.0), by_row.to(owned.device) * owned
        change = change_of(weights, self.initial_weights(local))
        return weight_parts(change, self._sent(local.layout), *each), local.state

    def _sent(self, layout: Layout) -> Layout:
        return replace(layout, head=()) if self.fixed_rows else layout
