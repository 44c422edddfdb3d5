"""FedProx (Li et al., MLSys 2020): a proximal pull towards the broadcast weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from fedquilt.data.loading.batches import Batch
from fedquilt.losses.proximal import squared_distance
from fedquilt.method import Local
from fedquilt.methods.fedavg import FedAvg


@dataclass(frozen=True, kw_only=True)
class FedProx(FedAvg):
    """FedAvg-PL plus (mu / 2) times the squared distance to the received weights.

    Only trainable weights are held, not batch-norm statistics. The pull also keeps head rows of
    un-annotated classes in place. With mu = 0 it is FedAvg-PL.
    """

    unannotated: Literal["negative", "skip"] = "skip"  # what the loss makes of a blank label
    mu: float = 0.01  # strength of the pull

    def loss(self, local: Local, batch: Batch) -> Tensor:
        supervised = super().loss(local, batch)
        if self.mu == 0:
            return supervised
        trained = ((name, w) for name, w in local.model.named_parameters() if w.requires_grad)
        distance = squared_distance(trained, local.received["weights"])
        return supervised + 0.5 * self.mu * distance
