"""A method that fails at the second of the tiny federation's clients."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedquilt.data.batches import Batch
from fedquilt.methods.fedavg import FedAvg
from fedquilt.training.method import Local


@dataclass(frozen=True, kw_only=True)
class Failing(FedAvg):
    """Raises at one client."""

    def loss(self, local: Local, batch: Batch) -> Tensor:
        if local.data.name == "site-1":
            raise RuntimeError("the disk is full")
        return super().loss(local, batch)
