"""SCAFFOLD (Karimireddy et al., ICML 2020): gradients corrected by control variates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from fedquilt.core.payload import Sum, Update
from fedquilt.core.totals import Totals
from fedquilt.core.tree import Weights, add, divided, sub, zeros_like
from fedquilt.methods.fedavg import FedAvg
from fedquilt.training.aggregation import Weighting
from fedquilt.training.method import Local, State
from fedquilt.training.provenance import Provenance
from fedquilt.training.task import Task


@dataclass(frozen=True, kw_only=True)
class Scaffold(FedAvg):
    """FedAvg-PL with gradients corrected by control variates c (server) and c_k (client).

    The new c_k is the mean of the round's raw gradients. For plain SGD that is the paper's
    option II; for Adam, where the paper's quotient is no gradient, it still is what it should be.
    """

    unannotated: Literal["negative", "skip"] = "skip"  # what the loss makes of a blank label
    weighting: Weighting = "uniform"  # of clients, for everything but head rows

    def init_server(self, weights: Weights, task: Task, survey: Totals) -> State:
        trainable = {name: weights[name] for name in task.layout.body + task.layout.head}
        return super().init_server(weights, task, survey) | {"control": zeros_like(trainable)}

    def broadcast(self, server: State) -> State:
        return {"weights": server["weights"], "control": server["control"]}

    def expected_update(self, received: State, task: Task) -> Update:
        return {**super().expected_update(received, task), "control": Sum(received["control"])}

    @property
    def provenance(self) -> Mapping[str, Provenance]:
        return {**super().provenance, "control": "images"}

    def begin(self, local: Local) -> State:
        zeros = zeros_like(local.received["control"])
        return {"control": zeros, **local.state, "gradient_sum": zeros}

    def correct_gradients(self, local: Local, gradients: Weights) -> tuple[Weights, State]:
        c_k, c = local.state["control"], local.received["control"]
        # Algorithm 1, line 10: g - c_k + c, written so that equal variates leave every bit of g.
        corrected = add(gradients, sub(c, c_k))
        gradient_sum = add(local.state["gradient_sum"], gradients)
        return corrected, {**local.state, "gradient_sum": gradient_sum}

    def finish(self, local: Local, weights: Weights, steps: int) -> tuple[Update, State]:
        kept = {**local.state}
        control = divided(kept.pop("gradient_sum"), steps)  # line 12
        change = sub(control, kept["control"])
        update = {**self.weights_update(local, weights), "control": Sum(change)}
        return update, {**kept, "control": control}

    def update(self, server: State, totals: Totals) -> State:
        control = add(server["control"], totals.sum("control"), 1 / totals.population)  # line 17
        return super().update(server, totals) | {"control": control}
