"""FedProx (Li et al., MLSys 2020): a proximal term towards the broadcast weights."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.data.batches import Batch
from fedquilt.losses.proximal import squared_distance
from fedquilt.methods.fedavg_pl import FedAvgPL
from fedquilt.training.method import Local


@dataclass(frozen=True, kw_only=True)
class FedProx(FedAvgPL):
    """FedAvg-PL plus (mu / 2) times the squared distance to the received weights.

    The proximal term contains trainable weights only, not batch-norm statistics. It also keeps
    head rows of unannotated classes in place. With mu = 0 it is FedAvg-PL.
    """

    mu: float = 0.01  # strength of the proximal term

    trains_image_by_image: ClassVar[bool] = True

    def __post_init__(self) -> None:
        training = self.training
        # Above this limit, SGD on the proximal term alone diverges.
        limit = 2 * (1 + training.momentum) / training.lr if training.optimizer == "sgd" else inf
        if not 0 <= self.mu < limit:
            raise UserError(
                f"method.mu must be at least 0 and below {limit:g}, found {self.mu:g}; with sgd "
                f"and training.lr = {training.lr:g}, weights diverge for a larger mu"
            )

    def loss(self, local: Local, batch: Batch) -> Tensor:
        supervised, proximal = super().loss(local, batch), self.penalty(local)
        return supervised if proximal is None else supervised + proximal

    def penalty(self, local: Local) -> Tensor | None:
        if self.mu == 0:
            return None
        trained = ((name, w) for name, w in local.model.named_parameters() if w.requires_grad)
        distance = squared_distance(trained, local.received["weights"])
        return 0.5 * self.mu * distance
