"""FedLSM (Deng et al., MICCAI 2023): federated learning under label set mismatch."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.core.payload import Sum, Update
from fedquilt.core.totals import Totals
from fedquilt.core.tree import Weights, clone
from fedquilt.data.batches import Batch, Pool
from fedquilt.data.client_data import ClientData
from fedquilt.losses.class_prior import PositiveWeight, positive_weight
from fedquilt.losses.pseudo_labels import NO_TAG, Entropy, by_uncertainty, no_tags, uncertainty
from fedquilt.losses.soft_targets import (
    Labels,
    Targets,
    Weighed,
    beta_share,
    make_targets,
    mix,
    mix_targets,
    target_loss,
)
from fedquilt.models.spec import ModelSpec
from fedquilt.models.teacher import ema_update
from fedquilt.training.averaging import (
    SPARE_ROWS,
    HeadRows,
    WeightedAveraging,
    by_row_counts,
    head_provenance,
)
from fedquilt.training.local_training import LocalTraining
from fedquilt.training.method import Local, State
from fedquilt.training.parts import DeclaredPart, head_rows_mean
from fedquilt.training.provenance import Provenance
from fedquilt.training.task import Task


@dataclass(frozen=True, kw_only=True)
class FedLSM(WeightedAveraging):
    """A slow teacher fills in missing labels; images it is unsure of are mixed with sure ones.

    Each round the received model ranks images by the entropy of their missing labels. The most
    uncertain ones train in mixtures with the most certain; all others by their true labels, and by
    what the teacher is sure of on a weak view. A head row counts by the positives, true and filled
    in, that a client drew. With nothing missing this is FedAvg on strong views, but for that.

    Deviations from the public code: losses are masked entry by entry, class weights come from
    annotated labels only, entropy has both sides and is taken in evaluation mode, every round
    draws anew, and no class that was annotated as absent is filled in. The variant ``released``
    has that code's entropy and loss, in which unsure labels train as soft ones. If the audit shows
    positives filled in and hardly a negative, set draw_counts = false (docs/results/fedlsm.md).
    """

    training: LocalTraining = LocalTraining(batch_size=64, keep_optimizer=True)  # of a round
    unannotated: Literal["negative", "skip"] = "skip"  # a blank is filled in or skipped, never 0
    positive_weight: PositiveWeight = "odds"  # w_c, from the annotated entries of all clients
    positive_weight_cap: float | None = 100.0  # the largest, and that of a class without positives
    weighed: Weighed = "positives"  # what w_c weighs; mean: all entries' mean (several labels)
    head_rows: HeadRows = "annotators"  # whose head rows count where nobody drew a positive
    draw_counts: bool = True  # AWPA: head rows by the positives drawn; False: by ``head_rows``
    labels: Labels = "multi"  # single: of one class an image, by a softmax; blank: of an unknown
    thresholds: tuple[float, float] = (0.01, 0.85)  # tau_n, tau_p: sure that absent, or present
    uncertain_thresholds: tuple[float, float] = (0.005, 0.7)  # likewise, for uncertain images
    entropy: Literal["binary", "one_sided"] = "binary"  # of several labels; one_sided: -p ln p only
    uncertain_images: int = 500  # n_h: the most uncertain, if the client has enough
    certain_images: int = 2000  # n_l: the least uncertain; of fewer images both shrink alike
    mixed_images: int = 4  # mixtures among the ``training.batch_size`` images of a step
    mixing_strength: float = 0.1  # lambda_UDE: of the loss on mixtures; 0 makes none
    mixing_concentration: float = 0.2  # alpha: the share in a mixture is from Beta(alpha, alpha)
    teacher_decay: float = 0.999  # how much of the teacher a step leaves as it was

    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "released": {"entropy": "one_sided", "weighed": "mean"},
        "single-label": {
            "labels": "single",
            "positive_weight": "none",
            "thresholds": (0.01, 0.95),
            "uncertain_images": 50,
            "certain_images": 200,
        },
    }

    also_broadcast: ClassVar[tuple[str, ...]] = ("class_weight",)
    pseudo_label_key: ClassVar[str | None] = "tags"

    def __post_init__(self) -> None:
        for low, high in (self.thresholds, self.uncertain_thresholds):
            if not 0 <= low < high <= 1:
                raise UserError(f"fedlsm's thresholds must rise within 0..1, found {low}, {high}")
        counts = (self.uncertain_images, self.certain_images, self.mixed_images)
        if min(counts) < 0 or self.mixed_images >= self.training.batch_size:
            raise UserError(
                "fedlsm's uncertain_images, certain_images and mixed_images must be at least 0, "
                f"the last below training.batch_size, {self.training.batch_size}; found {counts}"
            )
        if self.unannotated != "skip":
            raise UserError("fedlsm fills in blank labels; leave unannotated at 'skip'")

    def model_spec(self, wanted: ModelSpec) -> ModelSpec:
        return wanted if self.labels == "multi" else wanted.with_softmax()

    def views(self, round_index: int) -> tuple[str, ...]:
        return ("strong", "weak")  # the student's and the teacher's

    def survey(self, data: ClientData) -> Update:
        counts = {"positives": data.positive_counts(), "annotated": data.annotated_counts()}
        sums = {name: Sum(count.to(torch.float64)) for name, count in counts.items()}
        return {**super().survey(data), **sums}

    def init_server(self, weights: Weights, task: Task, survey: Totals) -> State:
        positives, cap = survey.sum("positives"), self.positive_weight_cap
        weight = positive_weight(self.positive_weight, positives, survey.sum("annotated"), cap)
        lonely = [name for name, count in zip(task.classes, positives.tolist()) if count == 0]
        if lonely and self.positive_weight != "none" and cap is not None:
            weight = torch.where(positives == 0, cap, weight)
            warnings.warn(f"no client has a positive of {', '.join(lonely)}", stacklevel=2)
        return super().init_server(weights, task, survey) | {"class_weight": weight}

    def init_client(self, data: ClientData) -> State:
        if self.labels == "single":
            data.require_one_class_per_image("set method.labels to 'multi'")
        return {"tags": no_tags(data.known)}

    @property
    def parts(self) -> Mapping[str, DeclaredPart]:
        spare = head_rows_mean(head_provenance(self.head_rows))
        return {SPARE_ROWS: spare} if self.draw_counts else {}

    @property
    def provenance(self) -> Mapping[str, Provenance]:
        drawn: dict[str, Provenance] = {"head": "believed positives"} if self.draw_counts else {}
        return {**super().provenance, "positives": "sides", "annotated": "sides", **drawn}

    def begin(self, local: Local) -> State:
        data = local.data
        nothing_missing = data.is_decided if self.labels == "single" else data.is_complete
        teacher = {} if nothing_missing else {"teacher": clone(local.received["weights"])}
        drawn = torch.zeros_like(local.received["class_weight"])  # q_c
        return {"tags": torch.full_like(local.state["tags"], NO_TAG), "drawn": drawn, **teacher}

    def pools(self, local: Local) -> tuple[Pool, ...]:
        size, views = self.training.batch_size, self.views(local.round_index)
        if "teacher" not in local.state:
            return (Pool(size, views[:1]),)
        logits = local.predict(local.received["weights"], "plain").logits
        kind: Entropy = "softmax" if self.labels == "single" else self.entropy
        unsure = uncertainty(kind, logits, local.data.known)
        sizes = (self.uncertain_images, self.certain_images)
        uncertain, certain, between = by_uncertainty(unsure, *sizes)  # D_h, D_l, D_m
        count = min(self.mixed_images, len(uncertain), len(certain))
        if count == 0 or self.mixing_strength == 0:
            return (Pool(size, views),)
        beside = [Pool(count, ("plain",), rows, whole=True) for rows in (uncertain, certain)]
        return (Pool(size - count, views, torch.cat((certain, between))), *beside)

    def sample_noise(
        self, batch_size: int, class_count: int, generator: torch.Generator
    ) -> Tensor | None:
        return beta_share(self.mixing_concentration, generator)

    def loss(self, local: Local, batch: Batch) -> Tensor:
        return self.step_loss(local, batch)[0]

    def step_loss(self, local: Local, batch: Batch) -> tuple[Tensor, State]:
        strong, weight = batch.views[0], local.received["class_weight"]
        plain, *beside = self.targets(local, batch)
        state = _counted(local.state, batch.rows, plain)
        if not beside or batch.drawn is None:
            logits = local.model(strong).logits
            return target_loss(self.labels, logits, plain, weight, self.weighed), state
        uncertain, certain = batch.beside
        images = mix(uncertain.views[0], certain.views[0], batch.drawn)
        mixture = mix_targets(beside[0], beside[1], batch.drawn)
        logits = local.model(torch.cat((strong, images))).logits
        of_plain, of_mixtures = logits.tensor_split([len(strong)])
        supervised = target_loss(self.labels, of_plain, plain, weight, self.weighed)
        unweighed = torch.ones_like(weight)
        mixing = target_loss(self.labels, of_mixtures, mixture, unweighed, self.weighed)
        return supervised + self.mixing_strength * mixing, state

    def targets(self, local: Local, batch: Batch) -> list[Targets]:
        """Of the batch, then of the uncertain and the certain images beside it."""
        parts = (batch, *batch.beside)
        opinions = (torch.zeros_like(batch.labels),)  # without a teacher nothing is missing
        if "teacher" in local.state:
            seen = torch.cat([each.views[-1] for each in parts])
            logits = local.forward(local.state["teacher"], seen).logits
            opinions = logits.split([len(each.rows) for each in parts])
        limits = (self.thresholds, self.uncertain_thresholds, self.thresholds)
        return [
            make_targets(self.labels, each.labels, each.known, opinion, limit)
            for each, opinion, limit in zip(parts, opinions, limits)
        ]

    def after_step(self, local: Local, weights: Weights) -> State:
        if "teacher" not in local.state:
            return local.state
        old, buffers = local.state["teacher"], local.layout.buffers
        return {**local.state, "teacher": ema_update(old, local.model, self.teacher_decay, buffers)}

    def finish(self, local: Local, weights: Weights, steps: int) -> tuple[Update, State]:
        parts, state = self.weights_update(local, weights), local.state
        update = by_row_counts(parts, state["drawn"]) if self.draw_counts else parts
        return update, {"tags": state["tags"]}


def _counted(state: State, rows: Tensor, targets: Targets) -> State:
    """The state with the batch's positives counted and its pseudo-labels kept for the audit."""
    tags = state["tags"].index_copy(0, rows, targets.tags())
    return {**state, "drawn": state["drawn"] + targets.positive_counts(), "tags": tags}
