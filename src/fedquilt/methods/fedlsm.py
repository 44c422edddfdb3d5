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
from fedquilt.losses.class_prior import PositiveWeight
from fedquilt.losses.pseudo_labels import NO_TAG, Entropy, by_uncertainty, no_tags, uncertainty
from fedquilt.losses.soft_targets import Labels, Targets, Weighed, beta_share, make_targets, mix
from fedquilt.models.spec import ModelSpec
from fedquilt.models.teacher import ema_update
from fedquilt.training.activity import Activity, RunSize
from fedquilt.training.advice import none_predicted
from fedquilt.training.averaging import HeadRows, WeightedAveraging, by_row_counts, spare_rows
from fedquilt.training.local_training import LocalTraining
from fedquilt.training.method import Local, State
from fedquilt.training.parts import DeclaredPart
from fedquilt.training.provenance import Provenance

IMAGES_MIXED = "images mixed"


@dataclass(frozen=True, kw_only=True)
class FedLSM(WeightedAveraging):
    """A mean teacher fills in missing labels; uncertain images are mixed with certain ones.

    Each round the received model ranks images by the entropy of their missing labels. The most
    uncertain ones train in MixUp with the most certain; the others on true labels and on the
    teacher's confident predictions for a weak view. Head rows are weighted by the positives drawn,
    true and pseudo-labels. If no label is missing, all else is FedAvg on strong views.

    Deviations from the public code: losses are masked per entry, class weights come from annotated
    labels only, the entropy is two-sided and computed in evaluation mode, every round ranks and
    draws anew, and a class annotated as absent is never filled in. The losses on true labels
    (Eq. 4) and pseudo-labels (Eq. 5) are each divided by all entries of the batch, images times
    classes, so that their sum is one mean; the paper's own divisors could not be checked. The
    variant ``released`` has that code's entropy and loss, in which unconfident predictions are soft
    labels. If the audit finds hardly any negative pseudo-label among positive ones, set
    draw_counts = false (docs/results/fedlsm.md).
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
    entropy: Literal["binary", "one_sided", "random"] = "binary"  # ranks images; one_sided, for
    # "multi": -p ln p only; random: any order, the paper's ablation "without UE"
    uncertain_images: int = 500  # n_h: the most uncertain, if the client has enough
    certain_images: int = 2000  # n_l: the least uncertain; if too few, both shrink equally
    mixed_images: int = 4  # mixtures among the ``training.batch_size`` images of a step
    mixing_strength: float = 0.1  # lambda_UDE: weight of the loss on mixtures; 0: no mixtures
    mixing_concentration: float = 0.2  # alpha: mixing shares are drawn from Beta(alpha, alpha)
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
            raise UserError("fedlsm fills in missing labels; leave unannotated at 'skip'")

    def model_spec(self, wanted: ModelSpec) -> ModelSpec:
        return wanted if self.labels == "multi" else wanted.with_softmax()

    def views(self, round_index: int) -> tuple[str, ...]:
        return ("strong", "weak")  # the student's and the teacher's

    def init_client(self, data: ClientData) -> State:
        if self.labels == "single":
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
        return {"head": float(self.training.images_drawn(images))}

    def begin(self, local: Local) -> State:
        data = local.data
        nothing_missing = data.is_decided if self.labels == "single" else data.is_complete
        teacher = {} if nothing_missing else {"teacher": clone(local.received["weights"])}
        drawn = torch.zeros_like(self.class_weight(local))  # q_c
        tags = torch.full_like(local.state["tags"], NO_TAG)
        return {"tags": tags, "drawn": drawn, "mixed": local.scalar(0.0), **teacher}

    def pools(self, local: Local) -> tuple[Pool, ...]:
        size, views = self.training.batch_size, self.views(local.round_index)
        if "teacher" not in local.state:
            return (Pool(size, views[:1]),)
        sizes = (self.uncertain_images, self.certain_images)
        uncertain, certain, between = by_uncertainty(self.ranking(local), *sizes)  # D_h, D_l, D_m
        count = min(self.mixed_images, len(uncertain), len(certain))
        if count == 0 or self.mixing_strength == 0:
            return (Pool(size, views),)
        beside = [Pool(count, ("plain",), rows, whole=True) for rows in (uncertain, certain)]
        return (Pool(size - count, views, torch.cat((certain, between))), *beside)

    def ranking(self, local: Local) -> Tensor:
        """The uncertainty of every image, (N,)."""
        known = local.data.known
        if self.entropy == "random":
            return torch.rand(len(known), generator=local.generator).to(known.device)
        kind: Entropy = "softmax" if self.labels == "single" else self.entropy
        return uncertainty(kind, local.predict(local.received["weights"], "plain").logits, known)

    def sample_noise(self, batch_size: int, class_count: int, generator: torch.Generator) -> Tensor:
        return beta_share(self.mixing_concentration, generator)

    def loss(self, local: Local, batch: Batch) -> Tensor:
        return self.step_loss(local, batch)[0]

    def step_loss(self, local: Local, batch: Batch) -> tuple[Tensor, State]:
        strong, weight = batch.views[0], self.class_weight(local)
        plain, *beside = self.targets(local, batch)
        # The pseudo-labels are kept for the audit.
        tags = local.state["tags"].index_copy(0, batch.rows, plain.tags())
        drawn = local.state["drawn"] + plain.positive_counts()
        state = {**local.state, "drawn": drawn, "tags": tags}
        if not beside or batch.drawn is None:
            logits = local.model(strong).logits
            return plain.loss(self.labels, logits, weight, self.weighed), state
        uncertain, certain = (each.views[0] for each in batch.beside)
        state["mixed"] = state.get("mixed", 0) + len(uncertain)
        images = torch.cat((strong, mix(uncertain, certain, batch.drawn)))
        of_plain, of_mixtures = local.model(images).logits.tensor_split([len(strong)])
        supervised = plain.loss(self.labels, of_plain, weight, self.weighed)
        mixture = beside[0].mixed(beside[1], batch.drawn)
        mixing = mixture.loss(self.labels, of_mixtures, torch.ones_like(weight), self.weighed)
        return supervised + self.mixing_strength * mixing, state

    def targets(self, local: Local, batch: Batch) -> list[Targets]:
        """The targets of the batch, then of the uncertain and the certain images beside it."""
        batches = (batch, *batch.beside)
        teacher = (torch.zeros_like(batch.labels),)  # without a teacher no label is missing
        if "teacher" in local.state:
            images = torch.cat([each.views[-1] for each in batches])
            logits = local.forward(local.state["teacher"], images).logits
            teacher = logits.split([len(each.rows) for each in batches])
        limits = (self.thresholds, self.uncertain_thresholds, self.thresholds)
        return [
            make_targets(self.labels, each.labels, each.known, logits, limit)
            for each, logits, limit in zip(batches, teacher, limits)
        ]

    def after_step(self, local: Local, weights: Weights) -> State:
        if "teacher" not in local.state:
            return local.state
        old, buffers = local.state["teacher"], local.layout.buffers
        return {**local.state, "teacher": ema_update(old, local.model, self.teacher_decay, buffers)}

    def finish(self, local: Local, weights: Weights, steps: int) -> tuple[Update, State]:
        parts, state = self.weights_update(local, weights), local.state
        update = by_row_counts(parts, state["drawn"]) if self.draw_counts else parts
        return update, {"tags": state["tags"], "mixed": state["mixed"]}

    def activity(self, data: ClientData, state: State) -> Activity:
        mixed = {IMAGES_MIXED: int(state.get("mixed", 0))} if self.mixing_strength else {}
        return {**super().activity(data, state), **mixed}

    def why_idle(self, what: str, size: RunSize) -> str:
        advice = "train for more rounds, or set method.thresholds, such as [0.05, 0.85]"
        if what == IMAGES_MIXED:
            advice = "set method.uncertain_images and method.certain_images closer to each other"
            wanted = f"{self.uncertain_images} uncertain and {self.certain_images} certain images"
            reason = f"with {wanted} wanted, none is left of {max(size.images)}; {advice}"
        else:
            reason = none_predicted(*self.thresholds, advice)
        return super().why_idle(what, size) or reason
