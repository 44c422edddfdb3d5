"""FedMLP (Sun et al., MICCAI 2024): federated multi-label learning under task heterogeneity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fedquilt.core.payload import Mean, Update
from fedquilt.core.settings import added
from fedquilt.core.tree import Weights, without
from fedquilt.data.batches import Batch
from fedquilt.data.client_data import ClientData
from fedquilt.losses.class_prior import PositiveWeight, adjust_logits, tagged_prior
from fedquilt.losses.cross_entropy import elementwise_bce, masked_mean, mean_over_all
from fedquilt.losses.distillation import squared_gap
from fedquilt.losses.prototypes import Rounding, decided_share
from fedquilt.losses.pseudo_labels import with_tags
from fedquilt.training.activity import Activity, RunSize
from fedquilt.training.advice import suited_shares, why_nothing_is_tagged
from fedquilt.training.contribution import Contribution
from fedquilt.training.method import Local, State
from fedquilt.training.parts import DeclaredPart, per_class_mean
from fedquilt.training.prototype_averaging import PrototypeAveraging
from fedquilt.training.warm_up import WARM_UP


@dataclass(frozen=True, kw_only=True)
class FedMLP(PrototypeAveraging):
    """Fill in missing labels by global dual prototypes, the most certain entries first.

    Clients warm up on annotated labels. Then, in every round, unannotated entries are tagged by the
    similarity of an image's feature to the global "absent" and "present" prototypes. True and
    tagged labels are trained with the client's class prior in the logits; all other entries are
    held to the global model.

    Deviations: except in ``published``, the loss is the mean over supervised entries (Eq. 4 divides
    by all C classes), prototypes are weighted by their counts (Eq. 6: equally), learning degrees
    come from unannotated entries (Eq. 10: annotated), and the prior of a missing class is that of
    its tagged images (of all images). In all forms statistics use annotated labels only, a prior is
    clamped off 0 and 1, and a prototype that nobody sends any more is used for ten rounds.
    ``released`` is the authors' public code, see :class:`Released`.
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
    later_stage: ClassVar[str] = "detection"

    @property
    def parts(self) -> Mapping[str, DeclaredPart]:
        image = Contribution(classes="all", first_round=self.summaries_from)
        # 1 at first, as in the public code.
        difficulty = per_class_mean("annotated or not", start=1.0, contribution=image)
        return {**super().parts, "difficulty": difficulty}

    def views(self, round_index: int) -> tuple[str, ...]:
        return ("weak",) * (self.warmup_views if round_index < self.warmup_rounds else 1)

    def begin(self, local: Local) -> State:
        data, tags = local.data, local.state["tags"]
        if self.detection and local.round_index >= self.warmup_rounds:  # Algorithm 1, stage 2
            degree = local.received["difficulty"].to(torch.float64)  # d_c
            scale = degree if self.adaptive_threshold else torch.ones_like(degree)
            shares = scale * self.negative_share, scale * self.positive_share  # tau = d_c T
            gate = {"positives_need_negatives": self.fixed["positives_need_negatives"]}
            tags = self.tagged(local, self.fixed["feature_view"], shares, self.rounding, **gate)
        counts = data.positive_counts(), data.annotated_counts()
        prior = tagged_prior(*counts, tags, len(data), of_all=self.missing_prior == "client")
        return {**local.state, "tags": tags, "prior": prior}

    def loss(self, local: Local, batch: Batch) -> Tensor:
        tags = local.state["tags"][batch.rows]
        labels, supervised = with_tags(*self.supervision(batch), tags, ~batch.known)
        losses = [self._view_loss(local, images, labels, supervised) for images in batch.views]
        return torch.stack(losses).mean()

    def _view_loss(self, local: Local, images: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """Supervise the entries of ``mask`` by label or tag, hold others to the global model."""
        logits, warming_up = local.model(images).logits, local.stage == WARM_UP
        adjusted = adjust_logits(logits, local.state["prior"]) if self.logit_adjustment else logits
        entries = elementwise_bce(adjusted, labels, self.class_weight(local))
        average = masked_mean if self.normaliser == "supervised" else mean_over_all  # Eq. 4: 1 / C
        if not (self.fixed["warmup_consistency"] if warming_up else self.consistency):
            return average(entries, mask)
        gap = squared_gap(logits, local.forward(local.received["weights"], images).logits)
        if warming_up:
            return average(entries, mask) + masked_mean(gap, ~mask)
        return torch.where(mask, entries, gap).mean()

    def finish(self, local: Local, weights: Weights, steps: int) -> tuple[Update, State]:
        data, sent = local.data, self.nothing_sent(local)
        if local.round_index >= self.summaries_from:  # Algorithm 1, "Local Calculation"
            output = local.predict(weights, self.fixed["feature_view"])
            judged = ~data.known if self.difficulty_on == "missing" else data.known
            degree = Mean(*decided_share(output.logits, judged, self.low, self.high))
            sent = {"prototypes": self.prototypes(output.features, local), "difficulty": degree}
        return {**self.weights_update(local, weights), **sent}, without(local.state, "prior")

    def activity(self, data: ClientData, state: State) -> Activity:
        return super().activity(data, state) if self.detection else {}

    def why_idle(self, what: str, size: RunSize) -> str:
        tagged = max(self.negative_share, self.positive_share), self.rounding, (self.low, self.high)
        return super().why_idle(what, size) or why_nothing_is_tagged(*tagged, size)

    def suited_to(self, size: RunSize) -> Mapping[str, Any]:
        """Fill in as much after the warm-up as the paper in its 450 rounds after it."""
        warmup = super().suited_to(size)
        shares = {name: getattr(self, name) for name in ("negative_share", "positive_share")}
        return {**warmup, **suited_shares(shares, 450, warmup["warmup_rounds"], size)}


@dataclass(frozen=True, kw_only=True)
class Released(FedMLP):
    """The authors' public code; ``FedMLP.fixed`` explains what it changes."""

    fixed: ClassVar[Mapping[str, Any]] = {
        key: value for key, value in FedMLP.variants["released"].items() if key in FedMLP.fixed
    }
