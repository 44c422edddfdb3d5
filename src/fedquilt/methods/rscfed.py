"""RSCFed (Liang et al., CVPR 2022): random sampling consensus, in the FedMLP authors' form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.core.payload import Update
from fedquilt.core.totals import Totals
from fedquilt.core.tree import Weights, clone
from fedquilt.data.batches import Batch
from fedquilt.data.client_data import ClientData
from fedquilt.losses.cross_entropy import masked_mean
from fedquilt.losses.distillation import squared_gap
from fedquilt.models.teacher import ema_update
from fedquilt.training import whole_models
from fedquilt.training.activity import Activity, RunSize, distilled
from fedquilt.training.advice import groups_of_all
from fedquilt.training.averaging import WeightedAveraging, change_of
from fedquilt.training.method import Local, State
from fedquilt.training.provenance import Provenance
from fedquilt.training.task import Task

LEFT_OUT = "clients left out of each group"


@dataclass(frozen=True, kw_only=True)
class RSCFed(WeightedAveraging):
    """Average random groups of clients, then the groups; in a group, outlying clients count less.

    On missing labels, a teacher is distilled: an exponential moving average of the client's models
    that is never reset. The server needs every client's model, so models cannot be summed securely.

    Deviations: every client annotates something, so no client gets more weight for being labelled.
    All clients of the cohort train once a round. A group is at most the cohort. Settings are the
    paper's for five clients; the variant ``released`` has those of the public code, for eight.
    """

    group_size: int = 3  # clients in a group, drawn without replacement
    group_count: int = 3  # M: groups per round
    distance_scale: float = 0.01  # beta: how fast weights fall with the distance to the mean
    consistency: float = 1.0  # strength of the distillation on missing labels
    teacher_decay: float = 0.999  # share of the teacher that a step keeps

    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "released": {"group_size": 6, "group_count": 10}
    }

    def __post_init__(self) -> None:
        if self.group_size < 1 or self.group_count < 1:
            raise UserError(
                "rscfed needs group_size and group_count of at least 1, found "
                f"{self.group_size} and {self.group_count}"
            )

    def views(self, round_index: int) -> tuple[str, ...]:
        return ("weak", "weak")

    def init_server(self, weights: Weights, task: Task, survey: Totals) -> State:
        whole_models.require_sample_weights(self, "rscfed")
        draws = torch.Generator().manual_seed(task.seed).get_state()
        return super().init_server(weights, task, survey) | {"group_draws": draws}

    def expected_update(self, received: State, task: Task) -> Update:
        return whole_models.whole_model(received["weights"], task.layout, 0)

    @property
    def provenance(self) -> Mapping[str, Provenance]:
        return {**super().provenance, "images": "images"}

    def activity(self, data: ClientData, state: State) -> Activity:
        return distilled(data.known) if self.consistency else {}

    def server_activity(self, server: State, size: RunSize) -> Activity:
        return {LEFT_OUT: max(len(size.images) - self.group_size, 0)}

    def why_idle(self, what: str, size: RunSize) -> str:
        if what != LEFT_OUT:
            return super().why_idle(what, size)
        return groups_of_all(self.group_size, size)

    def suited_to(self, size: RunSize) -> Mapping[str, Any]:
        return {"group_size": min(self.group_size, max(len(size.images) - 1, 1))}

    def begin(self, local: Local) -> State:
        state = {"teacher": local.received["weights"], **local.state}
        return {**state, "teacher": clone(state["teacher"])}

    def loss(self, local: Local, batch: Batch) -> Tensor:
        logits, (_, known) = local.model(batch.views[0]).logits, self.supervision(batch)
        supervised = self.supervised_loss(local, logits, batch)
        teacher = local.forward(local.state["teacher"], batch.views[1]).logits
        return supervised + self.consistency * masked_mean(squared_gap(logits, teacher), ~known)

    def after_step(self, local: Local, weights: Weights) -> State:
        teacher = ema_update(local.state["teacher"], local.model, self.teacher_decay)
        return {**local.state, "teacher": teacher}

    def finish(self, local: Local, weights: Weights, steps: int) -> tuple[Update, State]:
        change = change_of(weights, local.received["weights"])
        return whole_models.whole_model(change, local.layout, len(local.data)), local.state

    def update(self, server: State, totals: Totals) -> State:
        changes, images = whole_models.whole_models(totals)
        draws = torch.Generator()
        draws.set_state(server["group_draws"])
        groups = (self.group_count, self.group_size)
        consensus = changes, images, groups, self.distance_scale, draws
        shares = whole_models.group_consensus(*consensus)
        change, buffers = whole_models.mixed_models(server["weights"], totals, changes, shares)
        return self.moved(server, change, buffers) | {"group_draws": draws.get_state()}
