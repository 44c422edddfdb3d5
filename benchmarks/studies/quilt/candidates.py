"""Ideas for QUILT that are tried on a tuning seed; what survives becomes a setting or a default."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from fedquilt.core.payload import Update
from fedquilt.core.totals import Totals
from fedquilt.core.tree import Weights, clone
from fedquilt.data.batches import Batch
from fedquilt.losses.class_prior import adjust_logits
from fedquilt.losses.cross_entropy import elementwise_bce
from fedquilt.losses.distillation import bernoulli_kl, squared_gap
from fedquilt.methods.quilt import Quilt
from fedquilt.training.method import Local, Stage, State

LATE = 0.5  # the share of the rounds after which late terms begin


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
class KullbackLeibler(Quilt):
    """Hold unannotated entries by the Kullback-Leibler divergence, not the squared gap."""

    def loss(self, local: Local, batch: Batch) -> Tensor:
        images = batch.views[0]
        logits = local.model(images).logits
        held = local.forward(local.received["weights"], images).logits
        entries = _supervised(self, local, batch, logits)
        return torch.where(batch.known, entries, bernoulli_kl(held.detach(), logits)).mean()


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
class StrongSupervision(Quilt):
    """Annotated entries are trained on a weak and a strong view; blanks are held on both."""

    def views(self, round_index: int) -> tuple[str, ...]:
        return ("weak", "strong")

    def loss(self, local: Local, batch: Batch) -> Tensor:
        weak, strong = batch.views
        held = local.forward(local.received["weights"], weak).logits
        terms = [
            torch.where(
                batch.known, _supervised(self, local, batch, logits), squared_gap(logits, held)
            ).mean()
            for logits in local.model(torch.cat([weak, strong])).logits.chunk(2)
        ]
        return torch.stack(terms).mean()


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
class AverageTeacher(Quilt):
    """Blanks are held to the client's own average of the models it received: no more is sent."""

    kept: float = 0.8  # of the average, in every round

    def begin(self, local: Local) -> State:
        received: Weights = local.received["weights"]
        before: Weights = local.state.get("teacher", received)
        teacher = {
            name: before[name].lerp(leaf, 1 - self.kept) if leaf.is_floating_point() else leaf
            for name, leaf in received.items()
        }
        return {**local.state, "teacher": teacher}

    def loss(self, local: Local, batch: Batch) -> Tensor:
        held = local.forward(local.state["teacher"], batch.views[0]).logits
        images = batch.views[0] if len(batch.views) == 1 else torch.cat([*batch.views])
        terms = [
            torch.where(
                batch.known, _supervised(self, local, batch, logits), squared_gap(logits, held)
            ).mean()
            for logits in local.model(images).logits.chunk(len(batch.views))
        ]
        return torch.stack(terms).mean()


@dataclass(frozen=True, kw_only=True)
class AverageTeacherBothViews(AverageTeacher):
    """The same, and the student sees a weak and a strong view."""

    def views(self, round_index: int) -> tuple[str, ...]:
        return ("weak", "strong")


def _supervised(method: Quilt, local: Local, batch: Batch, logits: Tensor) -> Tensor:
    labels, known = method.supervision(batch)
    adjusted = adjust_logits(logits, local.state["prior"])
    return elementwise_bce(adjusted, torch.where(known, labels, 0.0))


CANDIDATES = {
    "quilt-fading": "Fading",
    "quilt-buffers": "BuffersToo",
    "quilt-features": "FeaturesHeld",
    "quilt-kl": "KullbackLeibler",
    "quilt-late-strong": "LateStrong",
    "quilt-late-sharp": "LateSharp",
    "quilt-both-views": "StrongSupervision",
    "quilt-bolder": "Bolder",
    "quilt-late-agreeing": "LateAgreeing",
    "quilt-average-teacher": "AverageTeacher",
    "quilt-average-teacher-both-views": "AverageTeacherBothViews",
}
