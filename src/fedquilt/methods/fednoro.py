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
from fedquilt.losses.cross_entropy import elementwise_bce, masked_mean
from fedquilt.losses.distillation import squared_gap
from fedquilt.training.averaging import WeightedAveraging, change_of
from fedquilt.training.method import Local, State
from fedquilt.training.provenance import Provenance
from fedquilt.training.schedules import gaussian_ramp
from fedquilt.training.task import Task
from fedquilt.training.whole_models import (
    clean_clients,
    distance_aware_weights,
    distances_to_nearest,
    inner_products,
    mixed_models,
    whole_model,
    whole_models,
)


@dataclass(frozen=True, kw_only=True)
class FedNoRo(WeightedAveraging):
    """Supervise annotated labels, hold the others to the received model, more so every round.

    The teacher's logits are divided by a temperature below 1, which sharpens its predictions.

    Deviations: noisy are clients with unannotated labels, mostly all of them. So there is no first
    stage that looks for them by a mixture of Gaussians; nor does the paper's aggregation by the
    distance to clean clients do anything unless somebody annotated everything. It is there as
    ``distance_aware``, and then clients' models cannot be summed securely. As in the FedMLP
    authors' port, labels are held by squared distances of probabilities. The prior in the logits
    is that of the paper, from annotated labels. The variant ``ported`` is that port, which leaves
    the prior out.
    """

    positive_weight: PositiveWeight = "none"  # the prior in the logits takes its place
    logit_adjustment: bool = True  # LA: the client's prior in the logits of annotated labels
    distillation: float = 0.8  # lambda_max: the teacher's share of the loss, once ramped up
    ramp_start: int = 10  # the round up to which the teacher's share is smallest
    ramp_end: int = 499  # the round from which it is whole; set it to the last round
    teacher_temperature: float = 0.8  # the teacher's logits are divided by this
    distance_aware: bool = False  # DaAgg: count less if far from all that annotated everything

    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {"ported": {"logit_adjustment": False}}

    def __post_init__(self) -> None:
        if not 0 <= self.distillation <= 1:
            raise UserError(
                f"method.distillation is a share of the loss, 0 to 1, found {self.distillation}"
            )
        if self.teacher_temperature <= 0 or self.ramp_end < self.ramp_start:
            raise UserError(
                "method needs teacher_temperature > 0 and ramp_end >= ramp_start, found "
                f"{self.teacher_temperature}, {self.ramp_end} and {self.ramp_start}"
            )
        if self.distance_aware and (self.head_rows != "all" or self.weighting != "samples"):
            raise UserError(
                "method.distance_aware weighs whole models by images and distance; leave head_rows "
                f"and weighting as they are, found {self.head_rows!r} and {self.weighting!r}"
            )

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

    def begin(self, local: Local) -> State:
        return {**local.state, "teacher_share": local.scalar(self.teacher_share(local.round_index))}

    def loss(self, local: Local, batch: Batch) -> Tensor:
        logits = local.model(batch.views[0]).logits
        labels, supervised = self.supervision(batch)
        teacher = local.forward(local.received["weights"], batch.views[0]).logits
        adjusted = adjust_logits(logits, local.state["prior"]) if self.logit_adjustment else logits
        targets = torch.where(supervised, labels, torch.zeros_like(labels))
        entries = elementwise_bce(adjusted, targets, local.state["positive_weight"])
        distance = squared_gap(logits, teacher / self.teacher_temperature)
        # Without a label to hold, supervision is the whole loss.
        share = torch.where((~supervised).any(), local.state["teacher_share"], 0.0)
        held = masked_mean(distance, ~supervised)
        return (1.0 - share) * masked_mean(entries, supervised) + share * held

    def finish(self, local: Local, weights: Weights, steps: int) -> tuple[Update, State]:
        state = without(local.state, "teacher_share")
        if not self.distance_aware:
            return self.weights_update(local, weights), state
        change, data = change_of(weights, local.received["weights"]), local.data
        return whole_model(change, local.layout, len(data), is_clean=data.is_complete), state

    def update(self, server: State, totals: Totals) -> State:
        if not self.distance_aware:
            return super().update(server, totals)
        changes, images = whole_models(totals)
        distances = distances_to_nearest(inner_products(changes), clean_clients(totals))
        shares = distance_aware_weights(images, distances)
        return self.moved(server, *mixed_models(server["weights"], totals, changes, shares))

    def teacher_share(self, round_index: int) -> float:
        """w_t: how much of the loss is the teacher's."""
        return self.distillation * gaussian_ramp(round_index, self.ramp_start, self.ramp_end)
