"""MOON (Li, He and Song, CVPR 2021): model-contrastive federated learning."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.core.payload import Update
from fedquilt.core.tree import Weights
from fedquilt.data.batches import Batch
from fedquilt.losses.contrastive import model_contrast
from fedquilt.methods.fedavg_pl import FedAvgPL
from fedquilt.models.spec import ModelSpec
from fedquilt.training.method import Local, State


@dataclass(frozen=True, kw_only=True)
class Moon(FedAvgPL):
    """FedAvg-PL plus mu times a contrastive loss between the features of models.

    Features are drawn towards those of the received model, and away from those of the client's last
    models. They are taken after a projection, below the head. A client's first round has no last
    model, and so no contrastive loss. With mu = 0 it is FedAvg-PL on the same network. The loss
    uses no labels, so it is the same for multi-label data.
    """

    mu: float = 1.0  # strength of the contrastive loss
    temperature: float = 0.5  # tau: divides the cosines
    buffer_size: int = 1  # last local models a client keeps
    projection: int | None = 256  # width of the projection, unless the recipe's model sets it;
    # None: no projection

    def __post_init__(self) -> None:
        if not self.temperature > 0 or self.buffer_size < 0:
            raise UserError(
                "method.temperature must be positive and method.buffer_size 0 or more, "
                f"found {self.temperature} and {self.buffer_size}"
            )

    def model_spec(self, wanted: ModelSpec) -> ModelSpec:
        wanted = super().model_spec(wanted)
        if wanted.projection is not None:
            return wanted
        return replace(wanted, projection=self.projection)

    def loss(self, local: Local, batch: Batch) -> Tensor:
        images = batch.views[0]
        output = local.model(images)
        supervised = self.supervised_loss(local, output.logits, batch)
        previous = local.state.get("previous", {})
        if self.mu == 0 or not previous:
            return supervised
        near = local.forward(local.received["weights"], images).features
        far = [local.forward(weights, images).features for weights in previous.values()]
        return supervised + self.mu * model_contrast(output.features, near, far, self.temperature)

    def finish(self, local: Local, weights: Weights, steps: int) -> tuple[Update, State]:
        state = {key: value for key, value in local.state.items() if key != "previous"}
        previous = local.state.get("previous", {})
        newest_first = [weights, *(previous[age] for age in sorted(previous, key=int))]
        kept = {str(age): model for age, model in enumerate(newest_first[: self.buffer_size])}
        update = self.weights_update(local, weights)
        return update, state | ({"previous": kept} if kept else {})
