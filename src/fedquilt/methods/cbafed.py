"""CBAFed (Li et al., CVPR 2023): class balanced adaptive pseudo labelling, multi-label form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fedquilt.core.payload import Mean, Update
from fedquilt.core.totals import Totals
from fedquilt.core.tree import Weights
from fedquilt.data.batches import Batch
from fedquilt.losses.pseudo_labels import NO_TAG, class_thresholds, confident_tags, tagged_bce
from fedquilt.training.activity import RunSize
from fedquilt.training.method import Local, State
from fedquilt.training.parts import DeclaredPart, per_class_mean
from fedquilt.training.server_optimizer import residual_average
from fedquilt.training.task import Task
from fedquilt.training.warm_up import WARM_UP, WarmUpAveraging


@dataclass(frozen=True, kw_only=True)
class CBAFed(WarmUpAveraging):
    """Pseudo-labels by class-wise thresholds, higher for classes with many labels.

    After a warm-up, predictions above a class's threshold or below 1 minus it are pseudo-labels.
    Clients are weighted by the labels used. Every few rounds the model is mixed with an older one.

    Deviations: as in the FedMLP authors' code, but missing labels are filled in once a round, by
    the received model, as in the CVPR paper. ``released`` fills them in batch by batch like that
    code, but counts them once a round. ``supplement`` has the other values of FedMLP's supplement.
    """

    warmup_rounds: int = 50  # P: rounds on annotated labels only
    labelling: Literal["round", "batch"] = "round"  # when missing labels are filled in
    threshold_base: float = 0.45  # of a class's threshold: share + this - deviation of shares
    threshold_range: tuple[float, float] = (0.55, 0.95)  # limits of the thresholds
    residual_every: int = 5  # J: rounds after which the model is averaged with the last saved one
    warmup_residual: float = 0.8  # alpha_1: weight of the saved model in the warm-up
    residual: float = 0.5  # alpha_2: weight of the saved model after the warm-up

    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "released": {"labelling": "batch"},
        "supplement": {"threshold_base": 0.6, "residual_every": 1},
    }
    also_broadcast: ClassVar[tuple[str, ...]] = ("thresholds",)
    pseudo_label_key: ClassVar[str | None] = "tags"
    later_stage: ClassVar[str] = "pseudo labels"

    @property
    def parts(self) -> Mapping[str, DeclaredPart]:
        # All classes or none: the body's weight is their sum, so one missing could be computed.
        return {"class_share": per_class_mean("every class", start=None)}

    def init_server(self, weights: Weights, task: Task, survey: Totals) -> State:
        thresholds = torch.full((task.class_count,), self.threshold_range[1])
        own = {"saved": weights, "thresholds": thresholds, "rounds_done": torch.tensor(0)}
        return super().init_server(weights, task, survey) | own

    def begin(self, local: Local) -> State:
        if local.round_index < self.warmup_rounds:
            return local.state
        logits = local.predict(local.received["weights"], "plain").logits
        tags = confident_tags(logits, local.received["thresholds"], ~local.data.known)
        return {**local.state, "tags": tags}

    def why_idle(self, what: str, size: RunSize) -> str:
        low, high = self.threshold_range
        return super().why_idle(what, size) or (
            "no missing label was predicted with more confidence than its class's threshold, "
            f"which is {low:g} to {high:g}; set method.threshold_range lower"
        )

    def loss(self, local: Local, batch: Batch) -> Tensor:
        logits = local.model(batch.views[0]).logits
        supervised = self.supervised_loss(local, logits, batch)
        if local.stage == WARM_UP:
            return supervised
        tags, (_, known) = local.state["tags"][batch.rows], self.supervision(batch)
        if self.labelling == "batch":
            tags = confident_tags(logits, local.received["thresholds"], ~known)
        return supervised + tagged_bce(logits, torch.where(known, NO_TAG, tags))

    def weight_limits(self, images: int, class_count: int) -> Mapping[str, float]:
        labels = float(images * class_count)  # annotated or filled in, of all classes
        return dict.fromkeys(("body", "head", "buffers", "class_share"), labels)

    def finish(self, local: Local, weights: Weights, steps: int) -> tuple[Update, State]:
        filled_in = (local.state["tags"] != NO_TAG).sum(0)
        counts = (local.data.annotated_counts() + filled_in).to(torch.float32)
        warming_up = local.round_index < self.warmup_rounds
        used = float(len(local.data)) if warming_up else max(float(counts.sum()), 1.0)
        weight = used if self.weighting == "samples" else 1.0
        parts = self.weights_update(local, weights, weight=weight)
        share = Mean(counts / used, torch.full_like(counts, used))
        return {**parts, "class_share": share}, local.state

    def update(self, server: State, totals: Totals) -> State:
        state = super().update(server, totals)
        done = server["rounds_done"]
        weights, saved = self.mixed(state["weights"], server["saved"], int(done))
        if bool((totals.weight("class_share") > 0).all()):  # a disclosure floor may withhold all
            limits = (self.threshold_base, *self.threshold_range)
            state["thresholds"] = class_thresholds(totals.mean("class_share"), *limits)
        return {**state, "weights": weights, "saved": saved, "rounds_done": done + 1}

    def mixed(self, weights: Weights, saved: Weights, round_index: int) -> tuple[Weights, Weights]:
        """The residual connection: return the model after a round, and the one to save."""
        warming_up = round_index < self.warmup_rounds
        stage_round = round_index if warming_up else round_index - self.warmup_rounds
        share = self.warmup_residual if warming_up else self.residual
        return residual_average(weights, saved, stage_round, self.residual_every, share)
