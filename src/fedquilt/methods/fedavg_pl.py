"""FedAvg-PL: FedAvg with the partial loss, a baseline of the FedMLP paper (MICCAI 2024)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedquilt.core.payload import Update
from fedquilt.core.tree import Weights
from fedquilt.methods.fedavg import FedAvg
from fedquilt.training.aggregation import or_negligible
from fedquilt.training.method import Local


@dataclass(frozen=True, kw_only=True)
class FedAvgPL(FedAvg):
    """FedAvg whose loss contains annotated entries only; a blank label says nothing.

    A client without any annotated label has nothing to learn from and does not count.
    """

    unannotated: Literal["negative", "skip"] = "skip"  # what the loss makes of a blank label

    def weights_update(self, local: Local, weights: Weights) -> Update:
        weight = float(len(local.data)) if self.weighting == "samples" else 1.0
        learns = self.unannotated == "negative" or local.data.has_annotations
        return self.weighted_update(local, weights, or_negligible(weight * learns, weight))
