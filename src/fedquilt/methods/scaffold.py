"""SCAFFOLD (Karimireddy et al., ICML 2020): gradients corrected by control variates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fedquilt.core.payload import Sum, Update
from fedquilt.core.tree import Weights, add, divided, sub, zeros_like
from fedquilt.training.averaging import WeightedAveraging, Weighting
from fedquilt.training.method import Local, State
from fedquilt.training.parts import DeclaredPart, SumPart


@dataclass(frozen=True, kw_only=True)
class Scaffold(WeightedAveraging):
    """FedAvg-PL with gradients corrected by control variates c (server) and c_k (client).

    The new c_k is the mean of the round's raw gradients. For plain SGD that is the paper's
    option II; for Adam the paper's quotient is not a gradient, and this mean still is.
    """

    weighting: Weighting = "uniform"  # of clients, for everything but head rows

    @property
    def parts(self) -> Mapping[str, DeclaredPart]:
        # Algorithm 1, line 17: the server adds the sum of changes over the population to c.
        return {"control": SumPart(provenance="images", over_population=True, largest=2.0**10)}

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
