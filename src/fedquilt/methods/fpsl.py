"""FPSL (Dong et al., IEEE TMI 2023): federated partially supervised learning; there, FedPSL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedquilt.core.errors import UserError
from fedquilt.core.payload import Update
from fedquilt.core.tree import Weights, without
from fedquilt.data.batches import Batch, Pool
from fedquilt.losses.class_prior import PositiveWeight
from fedquilt.models.feature_map import MapHead
from fedquilt.training.averaging import HeadRows, WeightedAveraging
from fedquilt.training.method import Local, State

SMALLEST_HALF = 2  # batch norm cannot train on one image
# In a client's state while the halves have changed roles. It is the name that says so, not the
# number: for that a GPU would have to be waited for.
SWAPPED = "swapped"


@dataclass(frozen=True, kw_only=True)
class FPSL(WeightedAveraging):
    """Average a head row over its annotators only; train head and body on different images.

    Each step the head learns from one half of the client's images, on features at rest, and the
    body from the other half, seen through the head as a plain gradient step would leave it. So
    the body cannot lean on what the head has learnt by heart. The halves change roles after every
    round of the client. With plain SGD a step is first one of the head, then one of the body.

    The paper's solver of the two nested problems is not known here: one inner step, halves of
    equal size and their change of roles are ours. The training loss is the sum of both halves'.
    A client with fewer than four images trains jointly.
    """

    positive_weight: PositiveWeight = "odds"  # w_c, from annotated entries only
    positive_weight_cap: float | None = 100.0  # the largest positive weight
    head_rows: HeadRows = "annotated"  # whose head rows count: annotators', by images or positives
    decoupling: bool = True  # head and body learn from different halves; off: only the averaging
    unrolled: bool = False  # the body's gradient also runs through the head's step: second order
    head_lr: float | None = (
        None  # of the head step that the body sees, always; training.lr if left out
    )
    split_seed: int = 0  # of the halves, which are drawn once for each client

    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "aggregation-only": {"decoupling": False},
    }

    def begin(self, local: Local) -> State:
        head = local.model.head
        if self.decoupling and (isinstance(head, MapHead) or not list(head.parameters())):
            raise UserError(
                f"fpsl trains the head apart from the body, and a {type(head).__name__} cannot be: "
                "it needs trained rows on pooled features; use the linear head, or "
                "decoupling = false"
            )
        return local.state

    def pools(self, local: Local) -> tuple[Pool, ...]:
        """The images that train the head, and those that train the body."""
        (pool,) = super().pools(local)
        if not self.decoupling:
            return (pool,)
        halves = local.data.halves(self.split_seed)
        if min(map(len, halves)) < SMALLEST_HALF:
            return (pool,)
        order = reversed(halves) if SWAPPED in local.state else halves
        return tuple(replace(pool, rows=rows) for rows in order)

    def loss(self, local: Local, batch: Batch) -> Tensor:
        if not batch.beside:
            return super().loss(local, batch)
        body_batch = batch.beside[0]
        head = local.model.head
        features = resting_features(local.model.backbone, batch.views[0], tracked=self.unrolled)
        head_loss = self.supervised_loss(local, head(features.detach()), batch)

        start = {name: w.detach().requires_grad_() for name, w in head.named_parameters()}
        inner = self.supervised_loss(local, functional_call(head, start, (features,)), batch)
        slopes = torch.autograd.grad(inner, list(start.values()), create_graph=self.unrolled)
        lr = self.training.lr if self.head_lr is None else self.head_lr
        stepped = {
            f"head.{name}": torch.add(w.detach(), slope, alpha=-lr)
            for (name, w), slope in zip(start.items(), slopes)
        }
        output = functional_call(local.model, stepped, (body_batch.views[0],))
        return head_loss + self.supervised_loss(local, output.logits, body_batch)

    def finish(self, local: Local, weights: Weights, steps: int) -> tuple[Update, State]:
        change_roles = self.decoupling and SWAPPED not in local.state
        kept = without(local.state, SWAPPED) | ({SWAPPED: torch.ones(())} if change_roles else {})
        return self.weights_update(local, weights), kept


def resting_features(backbone: nn.Module, images: Tensor, *, tracked: bool) -> Tensor:
    """Features in evaluation mode: no batch-norm statistic moves, and none is of this batch.

    Untracked, it is the weights that are detached, not the pass: so autocast, which keeps its casts
    of weights, cannot take one without a gradient into the pass that needs it.
    """
    weights = {name: w if tracked else w.detach() for name, w in backbone.named_parameters()}
    backbone.eval()
    features: Tensor = functional_call(backbone, weights, (images,))
    backbone.train()
    return features
