"""FedVLS (Guo et al., AAAI 2025): vacant-class distillation and logit suppression."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fedquilt.data.batches import Batch
from fedquilt.data.client_data import ClientData
from fedquilt.losses.class_prior import (
    PositiveWeight,
    adjust_logits,
    clamp_prior,
    logit_suppression,
)
from fedquilt.losses.cross_entropy import masked_bce, masked_mean
from fedquilt.losses.distillation import bernoulli_kl
from fedquilt.losses.single_label import calibrated_cross_entropy, soft_maxima, vacant_divergence
from fedquilt.training.activity import Activity, RunSize
from fedquilt.training.averaging import WeightedAveraging
from fedquilt.training.method import Local, State

VACANT = "vacant classes distilled"


@dataclass(frozen=True, kw_only=True)
class FedVLS(WeightedAveraging):
    """Supervise the classes a client has positives of, with its prior in the logits; distil others.

    A class without an annotated positive is vacant, even if it is annotated: its negatives would
    only erase what other clients have learnt. A small penalty keeps logits of negatives low.

    Deviations: no multi-label form is published. Here every class is a Bernoulli variable: the
    paper's softmax over vacant classes does not see a shift of all of them, and is constant for a
    single one. Suppression uses a class's negatives; the paper's code also counts each positive as
    a logit of 0. The variant ``published`` is that code, for images of one class each; an image
    without a label is only distilled. Its scores are not log-odds, so only metrics of rankings
    within a class are meaningful.
    """

    positive_weight: PositiveWeight = "none"  # replaced by the prior in the logits
    calibration: bool = True  # the client's prior in the logits
    distillation: float = 0.1  # lambda: strength of distilling the received model
    suppression: float = 0.005  # beta: strength of the penalty on logits of negatives
    labels: Literal["multi", "single"] = "multi"  # single: classes compete in a softmax

    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {"published": {"labels": "single"}}

    def init_client(self, data: ClientData) -> State:
        positives = data.positive_counts()
        if self.labels == "single":
            data.require_one_class_per_image("set method.labels to 'multi'")
            prior = positives / positives.sum().clamp(min=1)
        else:
            prior = clamp_prior(positives / data.annotated_counts().clamp(min=1), len(data))
        return super().init_client(data) | {"prior": prior, "vacant": positives == 0}

    def activity(self, data: ClientData, state: State) -> Activity:
        return {VACANT: int(state["vacant"].sum())} if self.distillation else {}

    def why_idle(self, what: str, size: RunSize) -> str:
        return "every client has annotated positives of every class"

    def loss(self, local: Local, batch: Batch) -> Tensor:
        logits = local.model(batch.views[0]).logits
        if self.labels == "single":
            return self._softmax_loss(local, batch, logits)
        labels, known = self.supervision(batch)
        supervised = known & ~local.state["vacant"]
        prior = local.state["prior"]
        adjusted = adjust_logits(logits, prior) if self.calibration else logits
        loss = masked_bce(adjusted, labels, supervised, self.class_weight(local))
        if self.distillation:
            teacher = local.forward(local.received["weights"], batch.views[0]).logits
            gap = masked_mean(bernoulli_kl(teacher, logits), ~supervised)
            loss = loss + self.distillation * gap
        if self.suppression:
            negatives = supervised & (labels == 0)
            loss = loss + self.suppression * logit_suppression(logits, negatives, supervised, prior)
        return loss

    def _softmax_loss(self, local: Local, batch: Batch, logits: Tensor) -> Tensor:
        positive = batch.known & (batch.labels == 1)
        prior: Tensor = local.state["prior"]
        even = torch.full_like(prior, 1 / len(prior))
        loss = calibrated_cross_entropy(logits, positive, prior if self.calibration else even)
        if self.distillation:
            teacher = local.forward(local.received["weights"], batch.views[0]).logits
            gap = vacant_divergence(teacher, logits, local.state["vacant"])
            loss = loss + self.distillation * gap
        return loss + self.suppression * (prior * soft_maxima(logits, positive, prior)).sum()
