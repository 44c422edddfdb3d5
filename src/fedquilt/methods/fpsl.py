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
# A key of the client's state while the halves are swapped. Its presence is the flag, as reading its
# value would synchronise the GPU.
SWAPPED = "swapped"


@dataclass(frozen=True, kw_only=True)
class FPSL(WeightedAveraging):
    """Average head rows over their annotators only; train head and body on different images.

    In each step the head is trained on one half of the client's images, with fixed features, and
    the body on the other half, through the head after a plain gradient step. So the body cannot
    rely on what the head has memorised. The halves swap after every round of the client. With plain
    SGD, a step is a step of the head followed by one of the body.

    The paper's solver of the bilevel problem is not known: one inner step, halves of equal size and
    their swap are our choices. The training loss is the sum of the losses of both halves. A client
    with fewer than four images trains jointly.
    """

    positive_weight: PositiveWeight = "odds"  # w_c, from annotated entries only
    positive_weight_cap: float | None = 100.0  # the largest positive weight
    head_rows: HeadRows = "annotated"  # weights of head rows: annotated images, or positives
    decoupling: bool = True  # train head and body on different halves; False: averaging only
    unrolled: bool = False  # second order: the body's gradient also runs through the head's step
    head_lr: float | None = None  # of the inner head step, constant; left out: training.lr
    split_seed: int = 0  # of the halves, which are drawn once per client

    can_be_exclusive: ClassVar[bool] = True
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "aggregation-only": {"decoupling": False},
    }

    def begin(self, local: Local) -> State:
        head = local.model.head
        if self.decoupling and (isinstance(head, MapHead) or not list(head.parameters())):
            raise UserError(
                "fpsl trains the head apart from the body, which needs trained rows on pooled "
                f"features, found a {type(head).__name__}; use the linear head, or set "
                "decoupling = false"
            )
        return local.state

    def pools(self, local: Local) -> tuple[Pool, ...]:
        """Return the images that train the head, and those that train the body."""
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
        features = evaluation_features(local.model.backbone, batch.views[0], tracked=self.unrolled)
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


def evaluation_features(backbone: nn.Module, images: Tensor, *, tracked: bool) -> Tensor:
    """Return features in evaluation mode; batch norm neither uses the batch nor is updated.

    If not tracked, the weights are detached rather than the features: autocast caches casts of
    weights, and a cast without gradient must not be reused where a gradient is needed.
    """
    weights = {name: w if tracked else w.detach() for name, w in backbone.named_parameters()}
    backbone.eval()
    features: Tensor = functional_call(backbone, weights, (images,))
    backbone.train()
    return features
