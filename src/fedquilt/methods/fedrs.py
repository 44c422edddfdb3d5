"""FedRS (Li and Zhan, KDD 2021): scaled logits for the missing classes of a client."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.data.batches import Batch
from fedquilt.data.client_data import ClientData
from fedquilt.losses.class_prior import Restriction, logit_scale
from fedquilt.methods.fedavg import FedAvg
from fedquilt.models.heads.softmax import log_odds
from fedquilt.training.method import Local, State


@dataclass(frozen=True, kw_only=True)
class FedRS(FedAvg):
    """FedAvg with smaller updates of the head rows of classes that a client lacks.

    In training, the logit of such a class is multiplied by alpha; predictions use plain logits.
    With alpha = 1 it is FedAvg; with alpha = 0 the rows of missing classes are left unchanged.

    Deviations: the paper scales the logits of a softmax, where classes compete. With one sigmoid
    per class, only the size of a row's own steps changes. Unannotated labels are treated as
    negatives, unlike in most methods here: if they were masked out, the scaling would have no
    effect. The bias is scaled with its row; the authors' code drops it. With
    ``one_class_per_image`` it is the softmax of the paper, whose logits are first shifted so that
    their exponentials add up to 1.
    """

    alpha: float = 0.5  # factor of the logits of missing classes, 0 to 1
    restriction: Restriction = "annotated"  # a client has the classes that it annotates, or those
    # with annotated positives; frequency: graded by positives, as in the authors' code

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise UserError(f"method.alpha must be between 0 and 1, found {self.alpha}")

    def init_client(self, data: ClientData) -> State:
        positives, annotated = data.positive_counts(), data.annotated_counts()
        scale = logit_scale(self.restriction, positives, annotated, self.alpha)
        return super().init_client(data) | {"logit_scale": scale}

    def loss(self, local: Local, batch: Batch) -> Tensor:
        logits, scale = local.model(batch.views[0]).logits, local.state["logit_scale"]
        if self.one_class_per_image:
            restricted = log_odds(F.logsigmoid(logits) * scale)
        else:
            restricted = logits * scale
        return self.supervised_loss(local, restricted, batch)
