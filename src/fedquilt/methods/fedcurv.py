"""FedCurv (Shoham et al., NeurIPS workshop 2019): penalise changes that hurt other clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.core.payload import Sum, Update
from fedquilt.core.tree import Weights, add, copies_of, sub, tree_map, zeros_like
from fedquilt.data.batches import Batch, Pool
from fedquilt.losses.proximal import weighted_squared_distance
from fedquilt.methods.fedavg_pl import FedAvgPL
from fedquilt.training.method import Local, Stage, State
from fedquilt.training.parts import DeclaredPart, SumPart

SUMS = ("fisher", "fisher_weights")  # of the Fisher diagonal F_j, and of F_j times the weights
LOOKED = "squared gradients"  # of all local images, after training
ROUNDING = 1e-10  # a smaller share of the sum is a rounding error of the client's own term


@dataclass(frozen=True, kw_only=True)
class FedCurv(FedAvgPL):
    """FedAvg-PL plus lambda times the sum over other clients of F_j (theta - theta_j) squared.

    F_j is the diagonal of client j's Fisher information at its last weights theta_j. It is 0 for
    head rows of classes the client does not annotate, so only annotators constrain them. With
    lambda = 0, in the first round, and with a single client, it is FedAvg-PL.

    F_j is the mean of squared gradients of the masked loss on plain images, in the precision of
    training, with batch norm in evaluation mode. A gradient is that of ``fisher_batch`` images, as
    in public code, not of one image as in the paper: F_j is smaller by about that factor, and
    lambda must be larger by it.

    A client sends the change of its terms in both sums, so clients outside the cohort stay in the
    sums. These are float64: a client subtracts its own term from the sum, and little may remain.
    The penalty is written as a square, which differs from the paper's sum by a constant.
    """

    squared_parts: ClassVar[frozenset[str]] = frozenset(SUMS)

    strength: float = 0.1  # lambda: weight of the penalty
    fisher_batch: int = 32  # images whose mean gradient is squared; 1: the exact definition

    def __post_init__(self) -> None:
        if self.strength < 0 or self.fisher_batch < 1:
            raise UserError(
                "method.strength must be 0 or more and method.fisher_batch 1 or more, "
                f"found {self.strength} and {self.fisher_batch}"
            )

    @property
    def parts(self) -> Mapping[str, DeclaredPart]:
        return dict.fromkeys(
            SUMS, SumPart(provenance="images", dtype=torch.float64, largest=2.0**10)
        )

    def begin(self, local: Local) -> State:
        total = {key: local.received[key] for key in SUMS}
        own = local.state.get("own") or zeros_like(total)
        fisher, fisher_weights = (sub(total[key], own[key]) for key in SUMS)  # P and Q
        held = tree_map(lambda p, u: p > ROUNDING * u, fisher, total["fisher"])
        scratch = {
            "importance": tree_map(lambda p, is_held: torch.where(is_held, p, 0.0), fisher, held),
            "anchor": tree_map(
                lambda q, p, is_held: torch.where(is_held, q / torch.where(is_held, p, 1.0), 0.0),
                *(fisher_weights, fisher, held),
            ),
        }
        dtypes = {name: local.received["weights"][name] for name in held}
        as_trained = {
            key: tree_map(lambda leaf, like: leaf.to(like.dtype), tree, dtypes)
            for key, tree in scratch.items()
        }
        return {**local.state, "own": own, **as_trained, LOOKED: zeros_like(own["fisher"])}

    def stages(self, round_index: int) -> tuple[Stage, ...]:
        return *super().stages(round_index), Stage(name=LOOKED, trains=False)

    def pools(self, local: Local) -> tuple[Pool, ...]:
        if local.stage != LOOKED:
            return super().pools(local)
        return (Pool(self.fisher_batch, ("plain",), shuffles=False),)

    def loss(self, local: Local, batch: Batch) -> Tensor:
        supervised = super().loss(local, batch)
        if self.strength == 0:
            return supervised
        weights, state = dict(local.model.named_parameters()), local.state
        distance = weighted_squared_distance(weights, state["anchor"], state["importance"])
        return supervised + self.strength * distance

    def observe(self, local: Local, batch: Batch) -> State:
        """Add the batch's squared gradients, weighted by its number of images."""
        totals, named = local.state[LOOKED], dict(local.model.named_parameters())
        parameters = [named[name] for name in totals]
        local.model.eval()
        loss = super().loss(local, batch)
        local.model.train()
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
        doubles = copies_of(gradients, torch.float64)
        # In place: this scratch of the round is as large as two models.
        torch._foreach_addcmul_([*totals.values()], doubles, doubles, value=len(batch.rows))
        return local.state

    def finish(self, local: Local, weights: Weights, steps: int) -> tuple[Update, State]:
        fisher = {name: total / len(local.data) for name, total in local.state[LOOKED].items()}
        new = {"fisher": fisher, "fisher_weights": {k: f * weights[k] for k, f in fisher.items()}}
        kept = {**local.state}
        change = sub(new, kept["own"])
        # Added as the server adds it, so that for a single client exactly 0 remains.
        kept["own"] = add(kept["own"], change)
        sums = {key: Sum(change[key]) for key in SUMS}
        del kept["importance"], kept["anchor"], kept[LOOKED]
        return {**self.weights_update(local, weights), **sums}, kept
