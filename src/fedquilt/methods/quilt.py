"""QUILT (of this project, without a paper): for sites that annotate few of the classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.core.payload import over_leading_axes
from fedquilt.core.settings import added
from fedquilt.core.totals import Totals
from fedquilt.core.tree import Weights, zeros_like
from fedquilt.data.batches import Batch
from fedquilt.data.client_data import ClientData
from fedquilt.losses.class_prior import PositiveWeight, adjust_logits, clamp_prior
from fedquilt.losses.cross_entropy import elementwise_bce
from fedquilt.losses.distillation import squared_gap
from fedquilt.methods.fedavg_pl import FedAvgPL
from fedquilt.training.activity import Activity, distilled
from fedquilt.training.averaging import HeadRows, mean_change, moved_buffers
from fedquilt.training.method import Local, State
from fedquilt.training.task import Task


@dataclass(frozen=True, kw_only=True)
class Quilt(FedAvgPL):
    """Hold blanks to the received model, and step further than the mean where few sites annotate.

    An annotated entry is trained with the client's class prior pi in its logit z, every other entry
    is held to the received model's z' of the weak view: the loss is the mean of BCE(z + logit(pi),
    y) and (sigmoid(z) - sigmoid(z'))^2. A class's head row is averaged over its annotators.

    A share a_c of the clients annotates class c, the others hold it still, so averaging shortens
    the step. The server over-relaxes: it takes 1 + (1 - a_c) t_c times the mean change of row c and
    1 + (1 - a) t times that of the body, a being the mean of the a_c. On a quadratic a step below
    2 converges if plain averaging does not overshoot. In case it does, there is the guard t: it
    starts at 1 and adds the cosine of the last two changes every round, within 0 and 1.
    """

    positive_weight: PositiveWeight = "none"  # replaced by the prior in the logits
    head_rows: HeadRows = "annotators"  # as the body; of annotators only; by images or positives
    both_views: bool = added(False)  # also train on a strong view; choose ``views.strong``
    logit_adjustment: bool = True  # the client's prior in the logits of annotated labels
    consistency: bool = True  # hold unannotated entries to the received model
    over_relaxation: float = 1.0  # share of 1 - a that is added to the server's step
    guard: bool = True  # t: lower what is added while successive changes point back and forth

    can_be_exclusive: ClassVar[bool] = False
    trains_image_by_image: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 <= (share := self.over_relaxation) <= 1:
            raise UserError(f"method.over_relaxation must be a share in 0..1, found {share}")

    def init_server(self, weights: Weights, task: Task, survey: Totals) -> State:
        state = super().init_server(weights, task, survey)
        still = zeros_like({name: weights[name] for name in task.layout.body + task.layout.head})
        trust = torch.ones(task.class_count + 1, dtype=torch.float64)
        return self.surveyed_again(state, survey) | {"trust": trust, "change": still}

    def surveyed_again(self, server: State, survey: Totals) -> State:
        rest = 1 - survey.sum("annotators") / len(survey.cohort)  # 1 - a_c
        return server | {"rest": torch.cat([rest.mean()[None], rest]).to(torch.float64)}

    def init_client(self, data: ClientData) -> State:
        share = data.positive_counts() / data.annotated_counts().clamp(min=1)
        return super().init_client(data) | {"prior": clamp_prior(share, len(data))}

    def views(self, round_index: int) -> tuple[str, ...]:
        return ("strong", "weak") if self.both_views else ("weak",)

    def loss(self, local: Local, batch: Batch) -> Tensor:
        logits = local.model(torch.cat(batch.views)).logits.unflatten(0, (len(batch.views), -1))
        labels, known = self.supervision(batch)
        adjusted = adjust_logits(logits, local.state["prior"]) if self.logit_adjustment else logits
        targets = torch.where(known, labels, 0.0).expand_as(logits)
        entries = elementwise_bce(adjusted, targets, self.class_weight(local))
        if not self.consistency:
            return torch.where(known, entries, 0.0).mean()
        held = local.forward(local.received["weights"], batch.views[-1]).logits
        return torch.where(known, entries, squared_gap(logits, held)).mean()

    def image_loss(self, local: Local, batch: Batch) -> Tensor:
        return self.loss(local, batch)  # a mean over all classes; z' is what the server sent

    def activity(self, data: ClientData, state: State) -> Activity:
        return distilled(data.known) if self.consistency else {}

    def update(self, server: State, totals: Totals) -> State:
        change = mean_change(totals)
        head = totals.expected.get("head")
        rows = frozenset[str]() if head is None else frozenset(head.value)
        aligned = agreement(change, server["change"], rows, len(server["rest"]) - 1)
        trust = (server["trust"] + self.guard * aligned).clamp(0, 1)
        step = 1 + self.over_relaxation * server["rest"] * trust
        taken = {
            name: leaf * over_leading_axes(step[1:] if name in rows else step[0], leaf).to(leaf)
            for name, leaf in change.items()
        }
        new = self.moved(server, taken, moved_buffers(server["weights"], totals))
        return new | {"trust": trust, "change": change}


def agreement(change: Weights, last: Weights, rows: frozenset[str], count: int) -> Tensor:
    """The cosine of two changes, (1 + C,): of the body, then of each head row; 0 if one is 0."""
    pairs = (change, last), (change, change), (last, last)
    across, here, before = (inner_products(*pair, rows, count) for pair in pairs)
    lengths = (here * before).sqrt()
    return torch.where(lengths > 0, across / torch.where(lengths > 0, lengths, 1.0), 0.0)


def inner_products(one: Weights, other: Weights, rows: frozenset[str], count: int) -> Tensor:
    totals = torch.zeros(1 + count, dtype=torch.float64)
    for name, leaf in one.items():
        part = totals[1:] if name in rows else totals[:1]
        part += (leaf * other[name]).reshape(len(part), -1).sum(1, dtype=torch.float64)
    return totals
