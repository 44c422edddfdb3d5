"""FedIRM (Liu et al., MICCAI 2021): inter-client relation matching, in a multi-label form."""

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
from fedquilt.losses.distillation import relation_gap, relation_logits, relation_rows, squared_gap
from fedquilt.losses.pseudo_labels import confident_positives
from fedquilt.models.teacher import advanced, started, teacher_output
from fedquilt.training.activity import Activity, RunSize
from fedquilt.training.advice import no_confident_image
from fedquilt.training.method import Local, State
from fedquilt.training.parts import DeclaredPart, per_class_mean
from fedquilt.training.provenance import Provenance
from fedquilt.training.task import Task
from fedquilt.training.warm_up import WARM_UP, WarmUpAveraging, gaussian_ramp


@dataclass(frozen=True, kw_only=True)
class FedIRM(WarmUpAveraging):
    """Match the class relations in confident predictions with those of annotated labels.

    Row c of a relation matrix is the mean prediction for all classes on images of class c. After a
    warm-up, a client's matrix over confident predictions is pulled towards the annotators' mean
    matrix, and all its predictions towards a teacher, a moving average of the client's own models.

    Deviations from the FedMLP authors' port: the matrix is computed after training, over annotated
    positives; a row that nobody reported is not matched; the teacher averages batch-norm statistics
    too. The variant ``released`` has the port's mean over batches and teacher in training mode.
    """

    warmup_rounds: int = 20  # T: rounds on annotated labels only
    strength: float = 1.0  # weight of relation matching and consistency, after the ramp
    ramp_rounds: int = 30  # omega: rounds over which that weight grows, from the first round on
    entropy_limit: float = 2.0  # tau: an image is confident if its summed entropy is below
    confidence: float = 0.7  # and if all its probabilities are above this or below 1 minus it
    temperature: float = 2.0  # divides the logits in a relation matrix
    teacher_decay: float = 0.99  # largest decay of the teacher's moving average
    teacher_mode: Literal["evaluation", "training"] = "evaluation"  # of the teacher's batch norm
    matrix: Literal["positives", "batches"] = "positives"  # over all positives, or mean of batches

    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "released": {"teacher_mode": "training", "matrix": "batches"}
    }
    also_broadcast: ClassVar[tuple[str, ...]] = ("reported",)
    later_stage: ClassVar[str] = "matching"

    @property
    def parts(self) -> Mapping[str, DeclaredPart]:
        # In a mean over batches, classes annotated without positives have rows too, of 0.5.
        rows: Provenance = "positives" if self.matrix == "positives" else "sides"
        return {"relation": per_class_mean(rows, "classes", start=0.5)}

    def views(self, round_index: int) -> tuple[str, ...]:
        return ("weak", "weak")

    def init_server(self, weights: Weights, task: Task, survey: Totals) -> State:
        reported = torch.zeros(task.class_count, dtype=torch.bool)
        return super().init_server(weights, task, survey) | {"reported": reported}

    def begin(self, local: Local) -> State:
        if local.round_index < self.warmup_rounds:
            return local.state
        state = started(local.state, local.received["weights"], local.scalar(0.0))
        ramp = local.scalar(gaussian_ramp(local.round_index, 0, self.ramp_rounds))
        return {**state, "matched": local.scalar(0.0), "ramp": ramp}

    def loss(self, local: Local, batch: Batch) -> Tensor:
        return self.step_loss(local, batch)[0]

    def step_loss(self, local: Local, batch: Batch) -> tuple[Tensor, State]:
        first, second = (local.model(images).logits for images in batch.views)
        supervised = self.supervised_loss(local, first, batch)
        supervised = supervised + self.supervised_loss(local, second, batch)
        if local.stage == WARM_UP:
            return supervised, local.state
        teacher = self.teacher_mode, local.model, local.forward, local.state["teacher"]
        taught = teacher_output(*teacher, batch.views[1]).logits
        consistency = squared_gap(first, taught).sum(1).mean()
        relation, reported = local.received["relation"], local.received["reported"]
        confident = confident_positives(first, self.entropy_limit, self.confidence)
        own = relation_logits(first, confident, self.temperature)
        matching = relation_gap(own, relation, reported)
        matched = local.state.get("matched", 0) + (confident & reported).sum()
        loss: Tensor = supervised + self.strength * local.state["ramp"] * (consistency + matching)
        return loss, {**local.state, "matched": matched}

    def after_step(self, local: Local, weights: Weights) -> State:
        return advanced(local.state, local.model, self.teacher_decay)

    def finish(self, local: Local, weights: Weights, steps: int) -> tuple[Update, State]:
        data, sent = local.data, self.nothing_sent(local)
        if local.round_index >= self.summaries_from:
            logits, labels = local.predict(weights, "plain").logits, (data.positives(), data.known)
            settings = self.temperature, self.training.batch_size
            sent = {"relation": Mean(*relation_rows(self.matrix, logits, *labels, *settings))}
        return {**self.weights_update(local, weights), **sent}, without(local.state, "ramp")

    def update(self, server: State, totals: Totals) -> State:
        reported = server["reported"] | (totals.weight("relation") > 0)
        return super().update(server, totals) | {"reported": reported}

    def activity(self, data: ClientData, state: State) -> Activity:
        return {"predictions matched": int(state.get("matched", 0))}

    def why_idle(self, what: str, size: RunSize) -> str:
        return self.only_warmed_up(size) or no_confident_image(self.confidence, self.entropy_limit)

    def suited_to(self, size: RunSize) -> Mapping[str, Any]:
        return {**super().suited_to(size), "ramp_rounds": min(self.ramp_rounds, size.rounds // 2)}
