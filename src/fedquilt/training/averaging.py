"""WeightedAveraging: train locally, average the changes; the base of all methods.

Body, head rows and buffers are separate parts of the update: head rows can be averaged over a
class's annotators only, and buffers are averaged without the server optimizer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedquilt.core.payload import Mean, Sum, Update
from fedquilt.core.settings import added
from fedquilt.core.totals import Totals
from fedquilt.core.tree import Weights, add, flatten, part_of, sub, zeros_like
from fedquilt.data.batches import Batch
from fedquilt.data.client_data import ClientData
from fedquilt.losses.class_prior import PositiveWeight, population_weight, positive_weight
from fedquilt.losses.cross_entropy import labelled_cross_entropy, masked_bce
from fedquilt.losses.pseudo_labels import no_tags
from fedquilt.models.network import Layout
from fedquilt.models.private_weights import shared_layout
from fedquilt.models.spec import ModelSpec
from fedquilt.training.contribution import Contribution
from fedquilt.training.method import Local, Method, State
from fedquilt.training.parts import MeanPart, head_rows_mean
from fedquilt.training.privacy_settings import Privacy
from fedquilt.training.provenance import Provenance
from fedquilt.training.server_optimizer import ServerOptimizer
from fedquilt.training.task import Task

Weighting = Literal["samples", "uniform"]
HeadRows = Literal["all", "annotators", "annotated", "positives"]
NEGLIGIBLE = 1e-100  # changes no bit next to an ordinary weight, but alone it defines a mean
SPARE_ROWS = "spare_rows"  # a part: the head with other weights, for rows without any weight


def head_row_weights(rule: HeadRows, weight: float, data: ClientData) -> Tensor:
    """Return the weight of a client's head rows, per class.

    ``all``: the body's weight for every class. ``annotators``: the body's weight for the classes
    that the client annotates, else 0. ``annotated``: the number of its annotated images of the
    class. ``positives``: the number of its annotated positives.
    """
    if rule == "annotators":
        return data.known.any(0).to(torch.float64) * weight
    if rule == "annotated":
        return data.annotated_counts().to(torch.float64)
    if rule == "positives":
        return data.positive_counts().to(torch.float64)
    return torch.full((data.known.shape[1],), weight, dtype=torch.float64)


def head_provenance(rule: HeadRows) -> Provenance:
    """Return the images that head rows with this weighting are computed from."""
    rows: dict[HeadRows, Provenance] = {"all": "images", "positives": "positives"}
    return rows.get(rule, "annotated")


def or_negligible(weight: float, otherwise: float) -> float:
    """Return ``weight`` or, if it is 0, ``otherwise`` scaled to a negligible weight.

    That only counts if every client of the cohort has weight 0; they are then averaged by
    ``otherwise``, without a special case.
    """
    return weight if weight > 0 else NEGLIGIBLE * otherwise


def split(weights: Weights, layout: Layout) -> dict[str, Weights]:
    """Return the weights by part; a part without weights, such as no buffers, is left out."""
    buffers = tuple(name for name in layout.buffers if name not in layout.fixed)
    names = {"body": layout.body, "head": layout.head, "buffers": buffers}
    return {part: part_of(weights, group) for part, group in names.items() if group}


def weight_parts(
    change: Weights, layout: Layout, weight: float, head_weights: float | Tensor
) -> Update:
    """Return body, head and buffers as means; body and buffers require a positive weight."""
    return {
        part: Mean(value, head_weights)
        if part == "head"
        else Mean(value, weight, needs_weight=True)
        for part, value in split(change, layout).items()
    }


def by_row_counts(parts: Update, counts: Tensor) -> Update:
    """Weight head rows by ``counts``, (C,), and add the rows with their former weights.

    The latter are used for rows of which no client in the cohort has a count.
    """
    if "head" not in parts:
        return parts
    return {**parts, "head": Mean(parts["head"].value, counts), SPARE_ROWS: parts["head"]}


def spare_rows(rule: HeadRows) -> dict[str, MeanPart]:
    """Declare the part that :func:`by_row_counts` adds, for head rows weighted by this rule."""
    return {SPARE_ROWS: head_rows_mean(head_provenance(rule))}


def change_of(weights: Weights, received: Weights) -> Weights:
    change: Weights = sub(weights, received)
    return change


def mean_change(totals: Totals) -> Weights:
    """The mean change of all trainable weights.

    A head row for which no client has weight takes the change of the spare rows if they are sent,
    and is left unchanged otherwise.
    """
    change: Weights = totals.mean("body") if "body" in totals.expected else {}
    if "head" in totals.expected:
        otherwise = zeros_like(totals.expected["head"].value)
        if SPARE_ROWS in totals.expected:
            otherwise = totals.mean(SPARE_ROWS, otherwise=otherwise)
        change |= totals.mean("head", otherwise=otherwise)
    return change


def moved_buffers(weights: Weights, totals: Totals) -> Weights:
    """Return the buffers after a round: plain averages, without the server optimizer."""
    if "buffers" not in totals.expected:
        return {}
    change = totals.mean("buffers")
    buffers: Weights = add({name: weights[name] for name in change}, change)
    return buffers


@dataclass(frozen=True, kw_only=True)
class WeightedAveraging(Method):
    """Local training on annotated labels, then the weighted mean of the clients' changes."""

    unannotated: Literal["negative", "skip"] = "skip"  # in the loss: as negatives, or masked out
    positive_weight: PositiveWeight = "inverse-prevalence"  # w_c, from annotated entries only
    positive_weight_cap: float | None = None  # the largest positive weight, if any
    positive_weight_from: Literal["client", "population"] = added("client")  # whose labels w_c
    # counts: the client's own, or the sums over all clients, which the server sends to each
    weighting: Weighting = "samples"  # of clients, for everything but head rows
    head_rows: HeadRows = "all"  # as the body; of annotators only; by annotated images or positives
    server_step: ServerOptimizer = ServerOptimizer()  # applies the mean change to the weights
    one_class_per_image: bool = added(False)  # softmax and cross-entropy instead of sigmoids

    also_broadcast: ClassVar[tuple[str, ...]] = ()  # keys of the server's state, besides the parts

    can_be_exclusive: ClassVar[bool] = False  # has a form for ``one_class_per_image``

    @property
    def private(self) -> tuple[str, ...]:
        """Prefixes of the names of weights that stay at the client, if any do."""
        return ()

    def model_spec(self, wanted: ModelSpec) -> ModelSpec:
        wanted = super().model_spec(wanted)
        return wanted.with_softmax() if self.one_class_per_image else wanted

    def shared(self, layout: Layout) -> Layout:
        """The weights that are averaged."""
        return shared_layout(layout, self.private)

    def survey(self, data: ClientData) -> Update:
        found = super().survey(data)
        if self.positive_weight_from == "population":
            counts = {"positives": data.positive_counts(), "annotated": data.annotated_counts()}
            found = {**found, **{name: Sum(each.double()) for name, each in counts.items()}}
        return found

    def contributions(self, privacy: Privacy) -> Mapping[str, Contribution]:
        counts = ("positives", "annotated") if self.positive_weight_from == "population" else ()
        return {**super().contributions(privacy), **dict.fromkeys(counts, Contribution())}

    def init_server(self, weights: Weights, task: Task, survey: Totals) -> State:
        layout = self.shared(task.layout)
        averaged = frozenset(layout.names)
        shared = {name: weight for name, weight in weights.items() if name in averaged}
        trainable = {name: weights[name] for name in layout.body + layout.head}
        velocity = self.server_step.init(trainable)
        parts = {name: part.first_value(task, trainable) for name, part in self.kept_parts.items()}
        server = {"weights": shared} | ({"velocity": velocity} if velocity else {}) | parts
        if self.positive_weight_from == "population":
            rule, cap = self.positive_weight, self.positive_weight_cap
            counts = survey.sum("positives"), survey.sum("annotated")
            server["class_weight"] = population_weight(rule, *counts, cap, task.classes)
        return server

    def init_client(self, data: ClientData) -> State:
        if self.one_class_per_image:
            data.require_one_class_per_image("leave method.one_class_per_image false")
        counts = data.positive_counts(), data.annotated_counts()
        weight = positive_weight(self.positive_weight, *counts, self.positive_weight_cap)
        tags = {self.pseudo_label_key: no_tags(data.known)} if self.pseudo_label_key else {}
        return {"positive_weight": weight, **tags}

    def broadcast(self, server: State) -> State:
        keys = ("weights", *self.kept_parts, "class_weight", *self.also_broadcast)
        return {key: server[key] for key in keys if key in server}

    def expected_update(self, received: State, task: Task) -> Update:
        weights, layout = received["weights"], self.shared(task.layout)
        whole = weight_parts(weights, layout, 0.0, torch.zeros(task.class_count))
        parts = {name: part.expected(task, weights) for name, part in self.parts.items()}
        return {**whole, **{name: part for name, part in parts.items() if flatten(part.value)}}

    @property
    def provenance(self) -> Mapping[str, Provenance]:
        survey_and_parts = {**super().provenance}
        survey = {"annotators": survey_and_parts.pop("annotators")}
        if self.positive_weight_from == "population":
            survey |= {"positives": "sides", "annotated": "sides"}
        head = head_provenance(self.head_rows)
        weights: dict[str, Provenance] = {"body": "images", "head": head, "buffers": "images"}
        return {**survey, **weights, **survey_and_parts}

    def loss(self, local: Local, batch: Batch) -> Tensor:
        return self.supervised_loss(local, local.model(batch.views[0]).logits, batch)

    def image_loss(self, local: Local, batch: Batch) -> Tensor:
        """Sum over the image's annotated classes, divided by the number its site annotates."""
        logits = local.model(batch.views[0]).logits
        _, known = self.supervision(batch)
        everywhere = self.unannotated == "negative" or self.one_class_per_image
        classes = len(known[0]) if everywhere else local.data.known.any(0).sum().clamp(min=1)
        return self.supervised_loss(local, logits, batch) * known.sum() / classes

    def supervised_loss(self, local: Local, logits: Tensor, batch: Batch) -> Tensor:
        if self.one_class_per_image:  # no negatives, so ``unannotated`` has no effect
            return labelled_cross_entropy(logits, batch.labels, batch.known)
        labels, known = self.supervision(batch)
        return masked_bce(logits, labels, known, self.class_weight(local))

    def class_weight(self, local: Local) -> Tensor:
        """Return w_c, (C,)."""
        sent = self.positive_weight_from == "population"
        weight: Tensor = local.received["class_weight"] if sent else local.state["positive_weight"]
        return weight

    def supervision(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the labels and the mask of the supervised entries."""
        if self.unannotated == "skip":
            return batch.labels, batch.known
        zero_filled = torch.where(batch.known, batch.labels, torch.zeros_like(batch.labels))
        return zero_filled, torch.ones_like(batch.known)

    def finish(self, local: Local, weights: Weights, steps: int) -> tuple[Update, State]:
        return self.weights_update(local, weights), local.state

    def nothing_sent(self, local: Local) -> Update:
        """Return the kept means among the declared parts, without a value of this client."""
        means = {n: part for n, part in self.kept_parts.items() if isinstance(part, MeanPart)}
        return {name: part.nothing(local.received[name]) for name, part in means.items()}

    def client_weight(self, local: Local) -> float:
        """Return the client's weight in the mean of body and buffers."""
        return float(len(local.data)) if self.weighting == "samples" else 1.0

    def weights_update(
        self,
        local: Local,
        weights: Weights,
        *,
        weight: float | None = None,
        received: Weights | None = None,
    ) -> Update:
        """Return the body, head and buffers of an update.

        Args:
            weight: replaces ``client_weight()``.
            received: replaces the weights of the broadcast, from which the change is counted.
        """
        weight = self.client_weight(local) if weight is None else weight
        received = local.received["weights"] if received is None else received
        rows = head_row_weights(self.head_rows, weight, local.data)
        layout = self.shared(local.layout)
        change = change_of(part_of(weights, received), received)
        return weight_parts(change, layout, weight, rows)

    def update(self, server: State, totals: Totals) -> State:
        moved = self.moved(server, mean_change(totals), moved_buffers(server["weights"], totals))
        return moved | {
            name: part.updated(name, server[name], totals) for name, part in self.kept_parts.items()
        }

    def moved(self, server: State, change: Weights, buffers: Weights) -> State:
        """The server's state after a change of the trainable weights, with these new buffers."""
        trainable = {name: server["weights"][name] for name in change}
        new, velocity = self.server_step.apply(trainable, change, server.get("velocity", {}))
        new |= buffers
        # All of them, in their order; fixed buffers may not have travelled.
        weights = {name: new.get(name, old) for name, old in server["weights"].items()}
        return server | {"weights": weights} | ({"velocity": velocity} if velocity else {})

    def global_weights(self, server: State) -> Weights | None:
        return None if self.private else super().global_weights(server)
