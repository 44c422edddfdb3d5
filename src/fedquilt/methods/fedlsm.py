"""FedLSM (Deng et al., MICCAI 2023): federated learning under label set mismatch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.core.payload import Update
from fedquilt.core.settings import added
from fedquilt.core.tree import Weights, clone
from fedquilt.data.batches import Batch, Pool
from fedquilt.data.client_data import ClientData
from fedquilt.losses import soft_targets
from fedquilt.losses.class_prior import PositiveWeight
from fedquilt.losses.pseudo_labels import NO_TAG, no_tags
from fedquilt.losses.soft_targets import Labels, Targets, Weighed
from fedquilt.models.spec import ModelSpec
from fedquilt.models.teacher import ema_update
from fedquilt.training.activity import RunSize
from fedquilt.training.advice import none_predicted
from fedquilt.training.averaging import HeadRows, by_row_counts, spare_rows
from fedquilt.training.local_training import LocalTraining
from fedquilt.training.method import Local, State
from fedquilt.training.parts import DeclaredPart
from fedquilt.training.provenance import Provenance
from fedquilt.training.uncertain_mixing import UncertainMixing


@dataclass(frozen=True, kw_only=True)
class FedLSM(UncertainMixing):
    """A mean teacher fills in missing labels; uncertain images are mixed with certain ones.

    Each round the received model ranks images by the entropy of their missing labels. The most
    uncertain ones train in MixUp with the most certain; the others on true labels and on the
    teacher's confident predictions for a weak view. Head rows are weighted by the positives drawn,
    true and pseudo-labels. If no label is missing, all else is FedAvg on strong views.

    Deviations from the public code: losses are masked per entry, class weights come from annotated
    labels only, the entropy is two-sided and computed in evaluation mode, every round ranks and
    draws anew, and a class annotated as absent is never filled in. The losses on true labels
    (Eq. 4) and pseudo-labels (Eq. 5) are each divided by all entries of the batch; the paper's own
    divisors could not be checked. ``released`` has that code's entropy and loss, in which
    unconfident predictions are soft labels. If the audit finds hardly any negative pseudo-label,
    set draw_counts = false (docs/results/fedlsm.md).
    """

    training: LocalTraining = LocalTraining(batch_size=64, keep_optimizer=True)  # of a round
    unannotated: Literal["negative", "skip"] = "skip"  # filled in or masked out, never negative
    positive_weight: PositiveWeight = "odds"  # w_c, from the annotated entries of all clients
    positive_weight_cap: float | None = 100.0  # the largest, also for a class without positives
    positive_weight_from: Literal["client", "population"] = added("population")  # as published
    weighed: Weighed = "positives"  # what w_c multiplies; mean: the mean loss (labels = "multi")
    head_rows: HeadRows = "annotators"  # weights of head rows of which nobody drew a positive
    draw_counts: bool = True  # AWPA: weight head rows by positives drawn; False: by ``head_rows``
    labels: Labels = "multi"  # single: one class per image, by softmax; missing: class unknown
    thresholds: tuple[float, float] = (0.01, 0.85)  # tau_n, tau_p: below absent, above present
    uncertain_thresholds: tuple[float, float] = (0.005, 0.7)  # the same for uncertain images
    teacher_decay: float = 0.999  # decay of the teacher's moving average

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
    pseudo_label_key: ClassVar[str | None] = "tags"

    @property
    def exclusive(self) -> bool:
        return self.labels == "single"

    def __post_init__(self) -> None:
        super().__post_init__()
        soft_targets.require_rising("fedlsm", self.thresholds, self.uncertain_thresholds)
        if self.unannotated != "skip":
            raise UserError("fedlsm fills in missing labels; leave unannotated at 'skip'")

    def model_spec(self, wanted: ModelSpec) -> ModelSpec:
        return wanted.with_softmax() if self.exclusive else wanted

    def views(self, round_index: int) -> tuple[str, ...]:
        return ("strong", "weak")  # the student's and the teacher's

    def init_client(self, data: ClientData) -> State:
        if self.exclusive:
            data.require_one_class_per_image("set method.labels to 'multi'")
        return {"tags": no_tags(data.known)}

    @property
    def parts(self) -> Mapping[str, DeclaredPart]:
        return spare_rows(self.head_rows) if self.draw_counts else {}

    @property
    def provenance(self) -> Mapping[str, Provenance]:
        head: Provenance = "positives or pseudo-labels"
        return {**super().provenance, **({"head": head} if self.draw_counts else {})}

    def weight_limits(self, images: int, class_count: int) -> Mapping[str, float]:
        return {"head": float(self.training.images_drawn(images))} if self.draw_counts else {}

    def begin(self, local: Local) -> State:
        nothing_missing = local.data.is_decided if self.exclusive else local.data.is_complete
        teacher = {} if nothing_missing else {"teacher": clone(local.received["weights"])}
        drawn = torch.zeros_like(self.class_weight(local))  # q_c
        tags = torch.full_like(local.state["tags"], NO_TAG)
        return {"tags": tags, "drawn": drawn, "mixed": local.scalar(0.0), **teacher}

    def pools(self, local: Local) -> tuple[Pool, ...]:
        if "teacher" in local.state:
            return super().pools(local)
        return (Pool(self.training.batch_size, self.views(local.round_index)[:1]),)

    def loss(self, local: Local, batch: Batch) -> Tensor:
        return self.step_loss(local, batch)[0]

    def step_loss(self, local: Local, batch: Batch) -> tuple[Tensor, State]:
        targets = self.targets(local, batch)
        images, state = self.with_mixtures(local.state, batch)
        # The pseudo-labels are kept for the audit.
        tags = state["tags"].index_copy(0, batch.rows, targets[0].tags())
        drawn = state["drawn"] + targets[0].positive_counts()
        logits = local.model(images).logits
        weights = self.class_weight(local), self.weighed, self.mixing_strength
        loss = soft_targets.mixup_loss(self.labels, logits, targets, batch.drawn, *weights)
        return loss, {**state, "drawn": drawn, "tags": tags}

    def targets(self, local: Local, batch: Batch) -> list[Targets]:
        """The targets of the batch, then of the uncertain and the certain images beside it."""
        batches = (batch, *batch.beside)
        teacher = torch.zeros_like(batch.labels)  # without a teacher no label is missing
        if "teacher" in local.state:
            images = torch.cat([each.views[-1] for each in batches])
            teacher = local.forward(local.state["teacher"], images).logits
        limits = (self.thresholds, self.uncertain_thresholds, self.thresholds)
        return soft_targets.targets_of_batches(self.labels, batches, teacher, limits)

    def after_step(self, local: Local, weights: Weights) -> State:
        if "teacher" not in local.state:
            return local.state
        old, buffers = local.state["teacher"], local.layout.buffers
        return {**local.state, "teacher": ema_update(old, local.model, self.teacher_decay, buffers)}

    def finish(self, local: Local, weights: Weights, steps: int) -> tuple[Update, State]:
        parts, state = self.weights_update(local, weights), local.state
        update = by_row_counts(parts, state["drawn"]) if self.draw_counts else parts
        return update, {"tags": state["tags"], "mixed": state["mixed"]}

    def why_idle(self, what: str, size: RunSize) -> str:
        advice = "train for more rounds, or set method.thresholds, such as [0.05, 0.85]"
        return super().why_idle(what, size) or none_predicted(*self.thresholds, advice)
