"""Ideas for QUILT that are tried on a tuning seed; what survives becomes a setting or a default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from fedquilt.core.payload import Update
from fedquilt.core.totals import Totals
from fedquilt.core.tree import Weights, clone
from fedquilt.data.batches import Batch
from fedquilt.losses.class_prior import adjust_logits, clamp_prior
from fedquilt.losses.cross_entropy import elementwise_bce
from fedquilt.losses.distillation import squared_gap
from fedquilt.losses.soft_targets import beta_share, mix
from fedquilt.methods.quilt import Quilt
from fedquilt.training.method import Local, Stage, State
from fedquilt.training.task import Task

LATE = 0.5  # the share of the rounds after which late terms begin
AVERAGED_IN = 0.3  # the share of a round's predictions in the average over rounds
OFF_DIAGONAL = 0.005  # weight of correlations that are to be 0


@dataclass(frozen=True, kw_only=True)
class Fading(Quilt):
    """The guard is a schedule: what is added to the step falls to 0 with the rounds."""

    guard: bool = False
    rounds: int = 40

    def update(self, server: State, totals: Totals) -> State:
        done = server.get("done", torch.zeros(()))
        left = (1 - done / self.rounds).clamp(min=0).to(torch.float64)
        faded = server | {"trust": torch.ones_like(server["trust"]) * left}
        return super().update(faded, totals) | {"done": done + 1}


@dataclass(frozen=True, kw_only=True)
class BuffersToo(Quilt):
    """Batch-norm statistics take the body's step as well; a variance stays positive."""

    def moved(self, server: State, change: Weights, buffers: Weights) -> State:
        old, extra = server["weights"], float(server["rest"][0] * server["trust"][0])
        further = {}
        for name, mean in buffers.items():
            moved = mean + (mean - old[name]) * (extra if mean.is_floating_point() else 0)
            further[name] = moved.maximum(0.5 * mean) if name.endswith("var") else moved
        return super().moved(server, change, further)


@dataclass(frozen=True, kw_only=True)
class FeaturesHeld(Quilt):
    """Features are held to the received model's as well, by their cosine."""

    strength: float = 0.1

    def loss(self, local: Local, batch: Batch) -> Tensor:
        images = batch.views[0]
        output, held = local.model(images), local.forward(local.received["weights"], images)
        entries = _supervised(self, local, batch, output.logits)
        mean = torch.where(batch.known, entries, squared_gap(output.logits, held.logits)).mean()
        apart = 1 - cosine_similarity(output.features, held.features.detach(), dim=1)
        return mean + self.strength * apart.mean()


@dataclass(frozen=True, kw_only=True)
class LateStrong(Quilt):
    """Late, the student sees a strong view and the received model the weak one."""

    rounds: int = 40
    temperature: float = 1.0  # below 1, the late targets are sharpened

    def is_late(self, round_index: int) -> bool:
        return round_index >= LATE * self.rounds

    def stages(self, round_index: int) -> tuple[Stage, ...]:
        return (Stage(name="late" if self.is_late(round_index) else "early"),)

    def views(self, round_index: int) -> tuple[str, ...]:
        return ("strong", "weak") if self.is_late(round_index) else ("weak",)

    def loss(self, local: Local, batch: Batch) -> Tensor:
        if local.stage == "early":
            return super().loss(local, batch)
        logits = local.model(batch.views[0]).logits
        held = local.forward(local.received["weights"], batch.views[1]).logits
        entries = _supervised(self, local, batch, logits)
        return torch.where(
            batch.known, entries, squared_gap(logits, held / self.temperature)
        ).mean()


@dataclass(frozen=True, kw_only=True)
class LateSharp(LateStrong):
    """Late, soft targets on weak views are sharpened where the received model is sure."""

    temperature: float = 0.5

    def views(self, round_index: int) -> tuple[str, ...]:
        return ("weak", "weak") if self.is_late(round_index) else ("weak",)


@dataclass(frozen=True, kw_only=True)
class Bolder(Quilt):
    """Twice as much is added to the step, which only the guard keeps stable."""

    over_relaxation: float = 2.0

    def __post_init__(self) -> None:
        return


@dataclass(frozen=True, kw_only=True)
class LateAgreeing(LateStrong):
    """Late, targets are sharpened where the last two received models agree."""

    temperature: float = 0.5
    apart: float = 0.1  # the largest difference of two probabilities that agree

    def views(self, round_index: int) -> tuple[str, ...]:
        return ("weak",)

    def begin(self, local: Local) -> State:
        before = local.state.get("before", local.received["weights"])
        return {**local.state, "before": before}

    def loss(self, local: Local, batch: Batch) -> Tensor:
        if local.stage == "early":
            return Quilt.loss(self, local, batch)
        images = batch.views[0]
        logits = local.model(images).logits
        held = local.forward(local.received["weights"], images).logits
        before = local.forward(local.state["before"], images).logits
        agree = (torch.sigmoid(held) - torch.sigmoid(before)).abs() < self.apart
        target = torch.where(agree, (held + before) / 2 / self.temperature, held)
        entries = _supervised(self, local, batch, logits)
        return torch.where(batch.known, entries, squared_gap(logits, target)).mean()

    def finish(self, local: Local, weights: Weights, steps: int) -> tuple[Update, State]:
        update, state = super().finish(local, weights, steps)
        return update, {**state, "before": clone(local.received["weights"])}


@dataclass(frozen=True, kw_only=True)
class SemiSupervised(Quilt):
    """What semi-supervised learning does with unlabelled images, at the blanks of QUILT's loss.

    The teacher is the received model on the weak view, or an average of the received models. With
    MixUp, images, labels and the teacher's probabilities are mixed alike.
    """

    positive_weight_from: Literal["client", "population"] = "population"  # also sends prevalences
    student_sees: Literal["weak", "strong", "both", "weak twice"] = "weak"
    mixing: float = 0.0  # alpha of Beta(alpha, alpha); 0: no MixUp
    kept: float = 0.0  # share of the old average of received models, in every round
    blanks: float = 1.0  # their weight in the loss
    soft_labels: bool = False  # cross-entropy with the teacher's probability, not the squared gap
    once_a_round: bool = False  # targets are an average over the rounds' predictions
    matched: bool = False  # targets of a round are shifted to the annotators' prevalence
    temperature: float = 1.0  # of the targets of a round
    decorrelated: float = 0.0  # weight of Barlow Twins on the features of both views
    features: float = 0.0  # weight of the cosine distance to the received model's features
    own_targets: bool = False  # the strong view's are the student's, of the weak view

    also_broadcast: ClassVar[tuple[str, ...]] = ("prevalence",)

    def init_server(self, weights: Weights, task: Task, survey: Totals) -> State:
        share = survey.sum("positives") / survey.sum("annotated").clamp(min=1)
        return super().init_server(weights, task, survey) | {"prevalence": share}

    def views(self, round_index: int) -> tuple[str, ...]:
        seen = {"weak": ("weak",), "weak twice": ("weak", "weak")}
        return seen.get(self.student_sees, ("strong", "weak"))

    def sample_noise(
        self, batch_size: int, class_count: int, generator: torch.Generator
    ) -> Tensor | None:
        return beta_share(self.mixing, generator) if self.mixing else None

    def begin(self, local: Local) -> State:
        received: Weights = local.received["weights"]
        before: Weights = local.state.get("teacher", received)
        teacher = {
            name: before[name].lerp(leaf, 1 - self.kept) if leaf.is_floating_point() else leaf
            for name, leaf in received.items()
        }
        state = {**local.state, **({"teacher": teacher} if self.kept else {})}
        if not self.once_a_round:
            return state
        found = local.predict(received, "weak").logits.float()
        if self.matched:
            found = matched(found, local.received["prevalence"].to(found)) / self.temperature
        found = torch.sigmoid(found)
        return {**state, "targets": local.state.get("targets", found).lerp(found, AVERAGED_IN)}

    def targets(self, local: Local, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """The teacher's probabilities and features, (B, C) and (B, d)."""
        if self.once_a_round:
            return local.state["targets"].index_select(0, batch.rows), None
        teacher = local.state["teacher"] if self.kept else local.received["weights"]
        held = local.forward(teacher, batch.views[-1])
        return torch.sigmoid(held.logits.detach()), held.features.detach()

    def loss(self, local: Local, batch: Batch) -> Tensor:
        images, (labels, known) = batch.views[0], self.supervision(batch)
        labels = torch.where(known, labels, 0.0)
        target, features = self.targets(local, batch) if self.consistency else (labels, None)
        if sees_both := self.student_sees in ("both", "weak twice"):
            images = torch.cat([*batch.views])
            labels, known, target = (torch.cat([each, each]) for each in (labels, known, target))
        if batch.drawn is not None:
            images, labels, target = (
                mix(each, each.roll(1, 0), batch.drawn) for each in (images, labels, target)
            )
            known = known & known.roll(1, 0)
        output = local.model(images)
        logits = output.logits
        adjusted = adjust_logits(logits, local.state["prior"]) if self.logit_adjustment else logits
        entries = elementwise_bce(adjusted, labels, self.class_weight(local))
        if not self.consistency:
            return torch.where(known, entries, 0.0).mean()
        if self.own_targets:
            weak = torch.sigmoid(logits.detach().chunk(2)[1])
            target = torch.cat([weak, target.chunk(2)[1]])
        if self.soft_labels:
            gap = elementwise_bce(logits, target)
        else:
            gap = (torch.sigmoid(logits) - target).square()
        loss = torch.where(known, entries, self.blanks * gap).mean()
        if self.features and features is not None:
            held = torch.cat([features, features]) if sees_both else features
            loss = loss + self.features * (1 - cosine_similarity(output.features, held)).mean()
        if not self.decorrelated:
            return loss
        return loss + self.decorrelated * barlow_twins(*output.features.float().chunk(2))


@dataclass(frozen=True, kw_only=True)
class FullLabelsMixed(SemiSupervised):
    """The bound with the candidates' MixUp and views."""

    needs_complete_labels: ClassVar[bool] = True


def matched(logits: Tensor, prevalence: Tensor) -> Tensor:
    """Shift each class's balanced logits until their mean posterior is the prevalence."""
    prior = torch.logit(clamp_prior(prevalence, len(logits)))
    low, high = torch.full_like(prior, -10.0), torch.full_like(prior, 10.0)
    for _ in range(20):
        middle = (low + high) / 2
        above = torch.sigmoid(logits + middle + prior).mean(0) > torch.sigmoid(prior)
        low, high = torch.where(above, low, middle), torch.where(above, middle, high)
    return logits + (low + high) / 2


def barlow_twins(one: Tensor, other: Tensor) -> Tensor:
    """Features of two views: each correlates with itself and with no other feature."""
    one, other = ((each - each.mean(0)) / (each.var(0) + 1e-4).sqrt() for each in (one, other))
    correlations = one.T @ other / len(one)
    same = torch.eye(len(correlations), device=one.device)
    weights = torch.where(same > 0, 1.0, OFF_DIAGONAL)
    return (weights * (correlations - same).square()).sum() / len(correlations)


def _supervised(method: Quilt, local: Local, batch: Batch, logits: Tensor) -> Tensor:
    labels, known = method.supervision(batch)
    adjusted = adjust_logits(logits, local.state["prior"])
    return elementwise_bce(adjusted, torch.where(known, labels, 0.0))


CANDIDATES = {
    "quilt-fading": "Fading",
    "quilt-buffers": "BuffersToo",
    "quilt-features": "FeaturesHeld",
    "quilt-late-strong": "LateStrong",
    "quilt-late-sharp": "LateSharp",
    "quilt-bolder": "Bolder",
    "quilt-late-agreeing": "LateAgreeing",
    "quilt-semi-supervised": "SemiSupervised",
    "full-labels-mixed": "FullLabelsMixed",
}
