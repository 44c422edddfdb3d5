"""FedIRM (Liu et al., MICCAI 2021): inter-client relation matching, in a multi-label form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fedquilt.core.payload import Mean, Update
from fedquilt.core.totals import Totals
from fedquilt.core.tree import Weights, clone, without
from fedquilt.data.batches import Batch
from fedquilt.losses.distillation import relation_gap, relation_logits, squared_gap
from fedquilt.losses.pseudo_labels import binary_entropy, is_confident
from fedquilt.models.teacher import ema_update, training_mode_output
from fedquilt.training.averaging import WeightedAveraging
from fedquilt.training.method import Local, Stage, State
from fedquilt.training.parts import DeclaredPart, MeanPart
from fedquilt.training.provenance import Provenance
from fedquilt.training.schedules import gaussian_ramp
from fedquilt.training.task import Task

WARM_UP = "warm-up"


@dataclass(frozen=True, kw_only=True)
class FedIRM(WeightedAveraging):
    """Match how classes go together in sure predictions with how they do where annotated.

    Row c of a relation matrix is what a model says of all classes on images of class c. After a
    warm-up, a client's matrix over sure predictions is drawn to the annotators' mean matrix, and
    all of its predictions to a teacher, a moving average of the client's own models.

    Deviations from the FedMLP authors' port: the matrix that is sent comes from one pass after
    training over all annotated positives, not from a mean over batches, of which those without
    positives say one half; a client without positives of a class does not report its row; a row
    nobody reported is not matched. The teacher predicts in evaluation mode and follows batch-norm
    statistics too; in the port it predicts in training mode. The variant ``released`` does as the
    port, but for taking the matrix after training, too.
    """

    warmup_rounds: int = 20  # T: rounds on annotated labels only
    strength: float = 1.0  # of relation matching and consistency, once ramped up
    ramp_rounds: int = 30  # omega: over which they grow to that, counted from the first round
    entropy_limit: float = 2.0  # tau: summed over classes, below it an image is sure
    confidence: float = 0.7  # and each of its probabilities is above this or below 1 minus it
    temperature: float = 2.0  # logits are divided by it in a relation matrix
    teacher_decay: float = 0.99  # how much of the teacher a step leaves as it was, at most
    teacher_mode: Literal["evaluation", "training"] = "evaluation"  # whose batch statistics it uses
    matrix: Literal["positives", "batches"] = "positives"  # sent: over all annotated positives, or
    # the mean over batches, where a batch without positives of a class says one half

    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "released": {"teacher_mode": "training", "matrix": "batches"}
    }

    also_broadcast: ClassVar[tuple[str, ...]] = ("reported",)

    @property
    def parts(self) -> Mapping[str, DeclaredPart]:
        # In a mean over batches, classes annotated without positives have rows too: one half.
        rows: Provenance = "positives" if self.matrix == "positives" else "sides"
        relation = MeanPart(
            shape=("classes", "classes"), weight=("classes",), start=0.5, provenance=rows
        )
        return {"relation": relation}

    def views(self, round_index: int) -> tuple[str, ...]:
        return ("weak", "weak")

    def init_server(self, weights: Weights, task: Task, survey: Totals) -> State:
        reported = torch.zeros(task.class_count, dtype=torch.bool)
        return super().init_server(weights, task, survey) | {"reported": reported}

    def stages(self, round_index: int) -> tuple[Stage, ...]:
        return (Stage(name=WARM_UP if round_index < self.warmup_rounds else "matching"),)

    def begin(self, local: Local) -> State:
        if local.round_index < self.warmup_rounds:
            return local.state
        young = {"teacher": local.received["weights"], "teacher_steps": local.scalar(0.0)}
        state = {**young, **local.state}
        ramp = gaussian_ramp(local.round_index, 0, self.ramp_rounds)
        return {**state, "teacher": clone(state["teacher"]), "ramp": local.scalar(ramp)}

    def loss(self, local: Local, batch: Batch) -> Tensor:
        first, second = (local.model(images).logits for images in batch.views)
        supervised = self.supervised_loss(local, first, batch)
        supervised = supervised + self.supervised_loss(local, second, batch)
        if local.stage == WARM_UP:
            return supervised
        teacher = self._teacher_logits(local, batch.views[1])
        received = local.received
        source = relation_logits(first, self.sure_positives(first), self.temperature)
        consistency = squared_gap(first, teacher).sum(1).mean()
        matching = relation_gap(source, received["relation"], received["reported"])
        strength: Tensor = self.strength * local.state["ramp"]
        return supervised + strength * (consistency + matching)

    def _teacher_logits(self, local: Local, images: Tensor) -> Tensor:
        if self.teacher_mode == "training":
            return training_mode_output(local.model, local.state["teacher"], images).logits
        return local.forward(local.state["teacher"], images).logits

    def sure_positives(self, logits: Tensor) -> Tensor:
        """Labels predicted present on images of which every label is sure, (B, C) bool."""
        calm = binary_entropy(logits.detach()).sum(1) < self.entropy_limit
        sure = calm & is_confident(logits, self.confidence).all(1)
        return sure[:, None] & (logits > 0)

    def after_step(self, local: Local, weights: Weights) -> State:
        if local.stage == WARM_UP:
            return local.state
        done = local.state["teacher_steps"]
        decay = (1 - 1 / (done + 1)).clamp(max=self.teacher_decay)  # a young teacher learns fast
        teacher = ema_update(local.state["teacher"], local.model, decay)
        return {**local.state, "teacher": teacher, "teacher_steps": done + 1}

    def finish(self, local: Local, weights: Weights, steps: int) -> tuple[Update, State]:
        relation = torch.zeros_like(local.received["relation"])
        count = torch.zeros_like(relation[0])
        if local.round_index >= self.warmup_rounds - 1:
            relation, reports = self._matrix(local, weights)
            count = reports * float(len(local.data))
        parts = self.weights_update(local, weights)
        return {**parts, "relation": Mean(relation, count)}, without(local.state, "ramp")

    def _matrix(self, local: Local, weights: Weights) -> tuple[Tensor, Tensor]:
        """The client's relation matrix, and whether it reports each row, (C,) bool."""
        data, logits = local.data, local.predict(weights, "plain").logits
        present = data.positives()
        size = len(data) if self.matrix == "positives" else self.training.batch_size
        matrices = [
            torch.sigmoid(relation_logits(some, members, self.temperature))
            for some, members in zip(logits.split(size), present.split(size))
        ]
        reports = present if self.matrix == "positives" else data.known
        return torch.stack(matrices).mean(0), reports.any(0)

    def update(self, server: State, totals: Totals) -> State:
        reported = server["reported"] | (totals.weight("relation") > 0)
        return super().update(server, totals) | {"reported": reported}
