"""FedMLP (Sun et al., MICCAI 2024): federated multi-label learning under task heterogeneity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fedquilt.core.payload import Mean, Update
from fedquilt.core.settings import added
from fedquilt.core.totals import Totals
from fedquilt.core.tree import Weights, without
from fedquilt.data.batches import Batch
from fedquilt.data.client_data import ClientData
from fedquilt.losses.class_prior import PositiveWeight, adjust_logits, tagged_prior
from fedquilt.losses.cross_entropy import elementwise_bce, masked_mean
from fedquilt.losses.distillation import squared_gap
from fedquilt.losses.prototypes import (
    PrototypeWeights,
    Rounding,
    absence_score,
    class_prototypes,
    decided_share,
    prototype_weights,
    tag_missing_labels,
)
from fedquilt.losses.pseudo_labels import with_tags
from fedquilt.training.activity import Activity, RunSize
from fedquilt.training.advice import none_predicted, rounded_down, rounding_for, shares_for_rounds
from fedquilt.training.method import Local, State
from fedquilt.training.parts import DeclaredPart, per_class_mean, per_side_mean
from fedquilt.training.task import Task
from fedquilt.training.warm_up import WARM_UP, WarmUpAveraging

NEVER = 1_000_000  # the age of a prototype that no client has sent yet
PAPER_ROUNDS = 450  # after the warm-up


@dataclass(frozen=True, kw_only=True)
class FedMLP(WarmUpAveraging):
    """Fill in missing labels by global dual prototypes, the most certain entries first.

    Clients warm up on annotated labels. Then, in every round, unannotated entries are tagged by the
    similarity of an image's feature to the global "absent" and "present" prototypes. True and
    tagged labels are trained with the client's class prior in the logits; all other entries are
    held to the global model.

    ``published`` is the paper to the letter: the sum of Eq. 4 is divided by all C classes, Eq. 6
    averages the prototypes of annotators equally, the learning degrees of Eq. 10 come from
    annotated entries, and the prior is the share of positives among all images. ``released`` is
    the authors' public code, see :class:`Released`.

    Deviations: by default the loss is the mean over supervised entries, prototypes are weighted by
    their counts, learning degrees come from unannotated entries, and the prior of a missing class
    is that of its tagged images. In all forms statistics use annotated labels only, a prior is
    clamped off 0 and 1, and a prototype that nobody sends any more is used for ten rounds.
    """

    positive_weight: PositiveWeight = "none"  # replaced by the prior in the logits
    warmup_rounds: int = 50  # t_1: rounds on annotated labels only, before any tag
    warmup_views: int = 2  # augmented views per image in the warm-up; 1 if views do not vary
    detection: bool = True  # MLD: tag missing labels
    logit_adjustment: bool = True  # LA, the W of WPC: the client's prior in the logits
    consistency: bool = True  # CR: hold untagged entries to the global model
    adaptive_threshold: bool = True  # ST: scale the shares by the class's learning degree d_c
    negative_share: float = 0.005  # T_0: share of absent-looking entries tagged per round
    positive_share: float = 0.01  # T_1: share of present-looking entries tagged per round
    rounding: Rounding = "floor"  # of the number of tags; with floor, small data get none
    low: float = 0.3  # L: probabilities below it count as decided
    high: float = 0.7  # R: probabilities above it count as decided
    difficulty_on: Literal["missing", "active"] = "missing"  # entries that d_c is computed from
    prototype_weights: PrototypeWeights = "counts"  # of a client in the mean
    prototype_age_limit: int = 10  # rounds a prototype is used after it was last sent
    missing_prior: Literal["tagged", "client"] = "tagged"  # pi: of tagged images, or of all
    normaliser: Literal["supervised", "classes"] = added("supervised")  # divides the loss's sum

    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "published": {
            "normaliser": "classes",
            "prototype_weights": "clients",
            "difficulty_on": "active",
            "missing_prior": "client",
        },
        "released": {
            "logit_adjustment": False,
            "adaptive_threshold": False,
            "consistency": False,
            "warmup_consistency": True,
            "prototype_weights": "samples",
            "missing_prior": "client",
            "feature_view": "weak",
            "positives_need_negatives": True,
        },
    }
    fixed: ClassVar[Mapping[str, Any]] = {
        "warmup_consistency": False,  # also hold unannotated entries in the warm-up
        "feature_view": "plain",  # images that prototypes are computed on
        "positives_need_negatives": False,  # no positive tag in a round without a negative one
    }
    pseudo_label_key: ClassVar[str | None] = "tags"
    later_stage: ClassVar[str] = "detection"

    @property
    def parts(self) -> Mapping[str, DeclaredPart]:
        return {
            "prototypes": per_side_mean("features"),
            # 1 until a client sends it, as in the public code.
            "difficulty": per_class_mean("annotated or not", start=1.0),
        }

    def views(self, round_index: int) -> tuple[str, ...]:
        return ("weak",) * (self.warmup_views if round_index < self.warmup_rounds else 1)

    def init_server(self, weights: Weights, task: Task, survey: Totals) -> State:
        age = torch.full((task.class_count, 2), NEVER)
        return super().init_server(weights, task, survey) | {"prototype_age": age}

    def broadcast(self, server: State) -> State:
        young = server["prototype_age"] <= self.prototype_age_limit
        usable = young & (server["prototypes"].norm(dim=2) > 0)
        return super().broadcast(server) | {"usable": usable.all(1)}

    def begin(self, local: Local) -> State:
        data, tags = local.data, local.state["tags"]
        if self.detection and local.round_index >= self.warmup_rounds:  # Algorithm 1, stage 2
            features = local.predict(local.received["weights"], self.fixed["feature_view"]).features
            degree = local.received["difficulty"].to(torch.float64)  # d_c
            scale = degree if self.adaptive_threshold else torch.ones_like(degree)
            tags = tag_missing_labels(
                tags,
                absence_score(features, local.received["prototypes"]),
                ~data.known & local.received["usable"],
                scale * self.negative_share,  # tau_0 = d_c T_0
                scale * self.positive_share,  # tau_1 = d_c T_1
                self.rounding,
                positives_need_negatives=self.fixed["positives_need_negatives"],
            )
        counts = data.positive_counts(), data.annotated_counts()
        prior = tagged_prior(*counts, tags, len(data), of_all=self.missing_prior == "client")
        return {**local.state, "tags": tags, "prior": prior}

    def loss(self, local: Local, batch: Batch) -> Tensor:
        tags = local.state["tags"][batch.rows]
        labels, supervised = with_tags(*self.supervision(batch), tags, ~batch.known)
        losses = [self._view_loss(local, images, labels, supervised) for images in batch.views]
        return torch.stack(losses).mean()

    def _view_loss(
        self, local: Local, images: Tensor, labels: Tensor, supervised: Tensor
    ) -> Tensor:
        """Supervise entries by their label or tag, and hold the others to the received model."""
        logits = local.model(images).logits
        adjusted = adjust_logits(logits, local.state["prior"]) if self.logit_adjustment else logits
        targets = torch.where(supervised, labels, 0.0)
        entries = elementwise_bce(adjusted, targets, self.class_weight(local))
        if local.stage == WARM_UP:
            return self._warmup_loss(local, images, logits, entries, supervised)
        if not self.consistency:
            return self._supervised_mean(entries, supervised)
        gap = squared_gap(logits, local.forward(local.received["weights"], images).logits)
        return torch.where(supervised, entries, gap).mean()

    def _supervised_mean(self, entries: Tensor, supervised: Tensor) -> Tensor:
        if self.normaliser == "supervised":
            return masked_mean(entries, supervised)
        return torch.where(supervised, entries, 0.0).mean()  # Eq. 4: 1 / C

    def _warmup_loss(
        self, local: Local, images: Tensor, logits: Tensor, entries: Tensor, supervised: Tensor
    ) -> Tensor:
        return self._supervised_mean(entries, supervised)

    def finish(self, local: Local, weights: Weights, steps: int) -> tuple[Update, State]:
        data, received = local.data, local.received
        prototypes = torch.zeros_like(received["prototypes"])
        degree = torch.zeros_like(received["difficulty"])
        counts, entries = torch.zeros(prototypes.shape[:2]), torch.zeros_like(degree)
        if local.round_index >= self.warmup_rounds - 1:  # Algorithm 1, "Local Calculation"
            output = local.predict(weights, self.fixed["feature_view"])
            prototypes, counts = class_prototypes(output.features, data.labels, data.known)
            judged = ~data.known if self.difficulty_on == "missing" else data.known
            degree, entries = decided_share(output.logits, judged, self.low, self.high)
        weight = prototype_weights(self.prototype_weights, counts, len(data))
        sent = {"prototypes": Mean(prototypes, weight), "difficulty": Mean(degree, entries)}
        return {**self.weights_update(local, weights), **sent}, without(local.state, "prior")

    def activity(self, data: ClientData, state: State) -> Activity:
        return super().activity(data, state) if self.detection else {}

    def why_idle(self, what: str, size: RunSize) -> str:
        share = max(self.negative_share, self.positive_share)
        settings = "raise method.negative_share and method.positive_share"
        learning = "train for more rounds, or set method.adaptive_threshold to false"
        return (
            super().why_idle(what, size)
            or rounded_down(share, self.rounding, size, settings)
            or f"no class was learnt: {none_predicted(self.low, self.high, learning)}"
        )

    def suited_to(self, size: RunSize) -> Mapping[str, Any]:
        """Fill in, over the run, the share of the candidates that the paper's 500 rounds do."""
        warmup = super().suited_to(size)
        shares = {name: getattr(self, name) for name in ("negative_share", "positive_share")}
        shares = shares_for_rounds(shares, PAPER_ROUNDS, size.rounds - warmup["warmup_rounds"])
        return {**warmup, **shares, **rounding_for(min(shares.values()), size)}

    def update(self, server: State, totals: Totals) -> State:
        sent = totals.weight("prototypes") > 0
        age = torch.where(sent, 0, (server["prototype_age"] + 1).clamp(max=NEVER))
        return super().update(server, totals) | {"prototype_age": age}


@dataclass(frozen=True, kw_only=True)
class Released(FedMLP):
    """The authors' public code; ``FedMLP.fixed`` explains what it changes."""

    fixed: ClassVar[Mapping[str, Any]] = {
        key: value for key, value in FedMLP.variants["released"].items() if key in FedMLP.fixed
    }

    def _warmup_loss(
        self, local: Local, images: Tensor, logits: Tensor, entries: Tensor, supervised: Tensor
    ) -> Tensor:
        gap = squared_gap(logits, local.forward(local.received["weights"], images).logits)
        return masked_mean(entries, supervised) + masked_mean(gap, ~supervised)
