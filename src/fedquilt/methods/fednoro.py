"""FedNoRo (Wu et al., IJCAI 2023): noise-robust federated learning, its second stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.core.payload import Update
from fedquilt.core.totals import Totals
from fedquilt.core.tree import Weights, without
from fedquilt.data.batches import Batch
from fedquilt.data.client_data import ClientData
from fedquilt.losses.class_prior import PositiveWeight, adjust_logits, clamp_prior
from fedquilt.losses.cross_entropy import masked_bce, masked_mean
from fedquilt.losses.distillation import squared_gap
from fedquilt.training.activity import Activity, RunSize, distilled
from fedquilt.training.averaging import WeightedAveraging, change_of
from fedquilt.training.method import Local, State
from fedquilt.training.provenance import Provenance
from fedquilt.training.task import Task
from fedquilt.training.warm_up import gaussian_ramp
from fedquilt.training.whole_models import distance_aware_mean, require_sample_weights, whole_model


@dataclass(frozen=True, kw_only=True)
class FedNoRo(WeightedAveraging):
    """Supervise annotated labels, and distil the received model on the others, more every round.

    The teacher's logits are divided by a temperature below 1, which sharpens its predictions.

    Deviations: a client with unannotated labels counts as noisy, and usually all clients are. So
    there is no first stage that detects noisy clients by a mixture of Gaussians. The paper's
    aggregation by the distance to clean clients has no effect unless a client annotated everything;
    it is optional, ``distance_aware``, and then models cannot be summed securely. As in the FedMLP
    authors' port, distillation uses squared differences of probabilities. The prior in the logits
    is the paper's, from annotated labels. The variant ``ported`` is that port, without the prior.
    """

    positive_weight: PositiveWeight = "none"  # replaced by the prior in the logits
    logit_adjustment: bool = True  # LA: the client's prior in the logits of annotated labels
    distillation: float = 0.8  # lambda_max: the teacher's share of the loss after the ramp
    ramp_start: int = 10  # up to this round the teacher's share is smallest
    ramp_end: int = 499  # from this round on it is lambda_max; set it to the last round
    teacher_temperature: float = 0.8  # divides the teacher's logits
    distance_aware: bool = False  # DaAgg: clients far from all clean ones count less

    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {"ported": {"logit_adjustment": False}}

    def __post_init__(self) -> None:
        if not 0 <= self.distillation <= 1:
            raise UserError(
                f"method.distillation must be a share in 0..1, found {self.distillation}"
            )
        if self.teacher_temperature <= 0 or self.ramp_end < self.ramp_start:
            raise UserError(
                "method needs teacher_temperature > 0 and ramp_end >= ramp_start, found "
                f"{self.teacher_temperature}, {self.ramp_end} and {self.ramp_start}"
            )
        if self.distance_aware:
            require_sample_weights(self, "method.distance_aware")

    def expected_update(self, received: State, task: Task) -> Update:
        if not self.distance_aware:
            return super().expected_update(received, task)
        return whole_model(received["weights"], task.layout, 0, is_clean=False)

    @property
    def provenance(self) -> Mapping[str, Provenance]:
        alone: dict[str, Provenance] = {"images": "images", "is_clean": "images"}
        return {**super().provenance, **(alone if self.distance_aware else {})}

    def init_client(self, data: ClientData) -> State:
        share = data.positive_counts() / data.annotated_counts().clamp(min=1)
        return super().init_client(data) | {"prior": clamp_prior(share, len(data))}

    def activity(self, data: ClientData, state: State) -> Activity:
        return distilled(data.known) if self.distillation else {}

    def suited_to(self, size: RunSize) -> Mapping[str, Any]:
        """The ramp ends with the run and starts as early in it as in the paper."""
        start = size.rounds * self.ramp_start // (self.ramp_end + 1)
        return {"ramp_start": start, "ramp_end": max(size.rounds - 1, start)}

    def begin(self, local: Local) -> State:
        return {**local.state, "teacher_share": local.scalar(self.teacher_share(local.round_index))}

    def loss(self, local: Local, batch: Batch) -> Tensor:
        logits = local.model(batch.views[0]).logits
        labels, supervised = self.supervision(batch)
        teacher = local.forward(local.received["weights"], batch.views[0]).logits
        adjusted = adjust_logits(logits, local.state["prior"]) if self.logit_adjustment else logits
        loss = masked_bce(adjusted, labels, supervised, self.class_weight(local))
        gap = squared_gap(logits, teacher / self.teacher_temperature)
        # If every label is supervised, supervision is the whole loss.
        share = torch.where((~supervised).any(), local.state["teacher_share"], 0.0)
        return (1.0 - share) * loss + share * masked_mean(gap, ~supervised)

    def finish(self, local: Local, weights: Weights, steps: int) -> tuple[Update, State]:
        state = without(local.state, "teacher_share")
        if not self.distance_aware:
            return self.weights_update(local, weights), state
        change, data = change_of(weights, local.received["weights"]), local.data
        return whole_model(change, local.layout, len(data), is_clean=data.is_complete), state

    def update(self, server: State, totals: Totals) -> State:
        if not self.distance_aware:
            return super().update(server, totals)
        return self.moved(server, *distance_aware_mean(server["weights"], totals))

    def teacher_share(self, round_index: int) -> float:
        """w_t: the teacher's share of the loss."""
        return self.distillation * gaussian_ramp(round_index, self.ramp_start, self.ramp_end)
