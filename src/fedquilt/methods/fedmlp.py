"""FedMLP (Sun et al., MICCAI 2024): federated multi-label learning under task heterogeneity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fedquilt.core.payload import Mean, Update
from fedquilt.core.totals import Totals
from fedquilt.core.tree import Weights, without
from fedquilt.data.batches import Batch
from fedquilt.data.client_data import ClientData
from fedquilt.losses.class_prior import PositiveWeight, adjust_logits, clamp_prior
from fedquilt.losses.cross_entropy import elementwise_bce, masked_mean
from fedquilt.losses.distillation import squared_gap
from fedquilt.losses.prototypes import (
    Rounding,
    absence_score,
    class_prototypes,
    decided_share,
    tag_missing_labels,
)
from fedquilt.losses.pseudo_labels import NO_TAG, no_tags
from fedquilt.methods.fedavg import FedAvg
from fedquilt.training.method import Local, Stage, State
from fedquilt.training.provenance import Provenance
from fedquilt.training.task import Task

WARM_UP = "warm-up"
NEVER = 1_000_000  # the age of a prototype that nobody has sent yet


@dataclass(frozen=True, kw_only=True)
class FedMLP(FedAvg):
    """Fill in missing labels, a few surest ones a round, by global dual prototypes.

    Warm up on annotated labels; then tag un-annotated cells by how near an image's feature is to
    the global "absent" and "present" prototypes, train on true and tagged labels with the
    client's class prior in the logits, and hold all other cells to the global model.

    Deviations: every statistic is taken from annotated labels only; prototypes are weighted by
    their counts and computed on un-augmented images; a prior is kept off 0 and 1. The variant
    ``released`` is the authors' public code.
    """

    unannotated: Literal["negative", "skip"] = "skip"  # what the loss makes of a blank label
    positive_weight: PositiveWeight = "none"  # the prior in the logits takes its place
    warmup_rounds: int = 50  # t_1: rounds on annotated labels only, before any is filled in
    warmup_views: int = 2  # views an image is trained on in the warm-up; 1 where views do not vary
    detection: bool = True  # MLD: tag missing labels
    logit_adjustment: bool = True  # LA, the W of WPC: the client's prior in the logits
    consistency: bool = True  # CR: hold untagged cells to the global model
    adaptive_threshold: bool = True  # ST: scale the shares by the class's learning degree d_c
    warmup_consistency: bool = False  # CR in the warm-up already, as in the public code
    negative_share: float = 0.005  # T_0: of the cells that look absent, tagged a round
    positive_share: float = 0.01  # T_1: of the cells that look present, tagged a round
    rounding: Rounding = "floor"  # of the number tagged; floor starves small data
    low: float = 0.3  # L: a probability below counts as decided
    high: float = 0.7  # R: a probability above counts as decided
    difficulty_on: Literal["missing", "active"] = "missing"  # the classes that feed d_c
    prototype_weights: Literal["counts", "clients", "samples"] = "counts"  # in the mean
    prototype_age_limit: int = 10  # rounds a prototype may outlive its last report
    missing_prior: Literal["tagged", "client"] = "tagged"  # positives among tagged cells or all
    feature_view: Literal["plain", "weak"] = "plain"  # images that prototypes are computed on
    positives_need_negatives: bool = False  # no positive tag in a round without a negative one

    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "released": {
            "logit_adjustment": False,
            "adaptive_threshold": False,
            "consistency": False,
            "warmup_consistency": True,
            "prototype_weights": "samples",
            "missing_prior": "client",
            "feature_view": "weak",
            "positives_need_negatives": True,
        }
    }

    def views(self, round_index: int) -> tuple[str, ...]:
        return ("weak",) * (self.warmup_views if round_index < self.warmup_rounds else 1)

    def stages(self, round_index: int) -> tuple[Stage, ...]:
        return (Stage(name=WARM_UP if round_index < self.warmup_rounds else "detection"),)

    def init_server(self, weights: Weights, task: Task, survey: Totals) -> State:
        classes = task.class_count
        return super().init_server(weights, task, survey) | {
            "prototypes": torch.zeros(classes, 2, task.feature_count),
            "prototype_age": torch.full((classes, 2), NEVER),
            "difficulty": torch.ones(classes),  # 1 until somebody reports, as in the public code
        }

    def init_client(self, data: ClientData) -> State:
        return super().init_client(data) | {"tags": no_tags(data.known)}

    def broadcast(self, server: State) -> State:
        young = server["prototype_age"] <= self.prototype_age_limit
        usable = young & (server["prototypes"].norm(dim=2) > 0)
        keys = ("weights", "prototypes", "difficulty")
        return {key: server[key] for key in keys} | {"usable": usable.all(1)}

    def expected_update(self, received: State, task: Task) -> Update:
        return {
            **super().expected_update(received, task),
            "prototypes": Mean(received["prototypes"], torch.zeros(task.class_count, 2)),
            "difficulty": Mean(received["difficulty"], torch.zeros(task.class_count)),
        }

    @property
    def provenance(self) -> Mapping[str, Provenance]:
        return {**super().provenance, "prototypes": "sides", "difficulty": "annotated or not"}

    def begin(self, local: Local) -> State:
        tags = local.state["tags"]
        if self.detection and local.round_index >= self.warmup_rounds:  # Algorithm 1, stage 2
            features = local.predict(local.received["weights"], self.feature_view).features
            degree = local.received["difficulty"].to(torch.float64)  # d_c
            scale = degree if self.adaptive_threshold else torch.ones_like(degree)
            tags = tag_missing_labels(
                tags,
                absence_score(features, local.received["prototypes"]),
                ~local.data.known & local.received["usable"],
                scale * self.negative_share,  # tau_0 = d_c T_0
                scale * self.positive_share,  # tau_1 = d_c T_1
                self.rounding,
                positives_need_negatives=self.positives_need_negatives,
            )
        return {**local.state, "tags": tags, "prior": self._prior(local.data, tags)}

    def _prior(self, data: ClientData, tags: Tensor) -> Tensor:
        """pi per class: positives among the labels that train, true and tagged."""
        positives = data.positive_counts() + (tags == 1).sum(0)
        trained = data.annotated_counts() + (tags != NO_TAG).sum(0)
        count = trained.clamp(min=1) if self.missing_prior == "tagged" else len(data)
        return clamp_prior(positives / count, len(data))

    def loss(self, local: Local, batch: Batch) -> Tensor:
        tags = local.state["tags"][batch.rows]
        tagged = (tags != NO_TAG) & ~batch.known
        labels, known = self.supervision(batch)
        labels, supervised = torch.where(tagged, tags.to(labels.dtype), labels), known | tagged
        losses = [self._cell_loss(local, images, labels, supervised) for images in batch.views]
        return torch.stack(losses).mean()

    def _cell_loss(
        self, local: Local, images: Tensor, labels: Tensor, supervised: Tensor
    ) -> Tensor:
        """Every cell is either supervised, by a true or a tagged label, or held to the teacher."""
        logits = local.model(images).logits
        adjusted = adjust_logits(logits, local.state["prior"]) if self.logit_adjustment else logits
        targets = torch.where(supervised, labels, torch.zeros_like(labels))
        supervision = elementwise_bce(adjusted, targets, local.state["positive_weight"])
        warming_up = local.stage == WARM_UP
        if not (self.warmup_consistency if warming_up else self.consistency):
            return masked_mean(supervision, supervised)
        teacher = local.forward(local.received["weights"], images).logits
        distance = squared_gap(logits, teacher)
        if warming_up:
            return masked_mean(supervision, supervised) + masked_mean(distance, ~supervised)
        return torch.where(supervised, supervision, distance).mean()

    def finish(self, local: Local, weights: Weights, steps: int) -> tuple[Update, State]:
        prototypes = torch.zeros_like(local.received["prototypes"])
        counts = torch.zeros(prototypes.shape[:2])
        degree = torch.zeros_like(local.received["difficulty"])
        cells = torch.zeros_like(degree)
        if local.round_index >= self.warmup_rounds - 1:  # Algorithm 1, "Local Calculation"
            output = local.predict(weights, self.feature_view)
            data = local.data
            prototypes, counts = class_prototypes(output.features, data.labels, data.known)
            judged = ~data.known if self.difficulty_on == "missing" else data.known
            degree, cells = decided_share(output.logits, judged, self.low, self.high)
        return {
            **self.weights_update(local, weights),
            "prototypes": Mean(prototypes, self._prototype_weight(counts, len(local.data))),
            "difficulty": Mean(degree, cells),
        }, without(local.state, "prior")

    def _prototype_weight(self, counts: Tensor, samples: int) -> Tensor:
        if self.prototype_weights == "counts":
            return counts
        return (counts > 0) * (1.0 if self.prototype_weights == "clients" else float(samples))

    def update(self, server: State, totals: Totals) -> State:
        sent = totals.weight("prototypes") > 0
        age = torch.where(sent, 0, (server["prototype_age"] + 1).clamp(max=NEVER))
        return super().update(server, totals) | {
            "prototypes": totals.mean("prototypes", otherwise=server["prototypes"]),
            "prototype_age": age,
            "difficulty": totals.mean("difficulty", otherwise=server["difficulty"]),
        }
