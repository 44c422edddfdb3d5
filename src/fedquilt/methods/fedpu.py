"""FedPU (Lin et al., ICML 2022): learning from positive and unlabelled images at each client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.core.wording import counted
from fedquilt.data.batches import Batch
from fedquilt.data.client_data import ClientData
from fedquilt.losses.cross_entropy import masked_bce
from fedquilt.losses.positive_unlabelled import nonnegative_risk, softmax_risk
from fedquilt.methods.fedavg_pl import FedAvgPL
from fedquilt.models.spec import ModelSpec
from fedquilt.training.activity import Activity, RunSize
from fedquilt.training.method import Local, State


@dataclass(frozen=True, kw_only=True)
class FedPU(FedAvgPL):
    """FedAvg-PL with a positive-unlabelled risk for classes that have annotated positives only.

    If all annotated labels of a class are positive, its unannotated images are treated as
    negatives, corrected by the share ``prior`` of positives among them (non-negative risk). A class
    with annotated negatives is trained as in FedAvg-PL, a class without annotations not at all. So
    it is FedAvg-PL if no class has positives only, for example if whole classes are unannotated.

    Deviations: the paper's risk is for images of one class each, with a softmax over classes; that
    is the variant ``published``, with the divisor of the authors' code. It is not for multi-label
    data. A class without a positive in the batch is left out of that batch's risk.
    """

    prior: tuple[float, ...] | None = None  # pi: share of positives among unannotated images, one
    # for all classes or one per class; required if a class has positives only
    risk: Literal["non-negative", "softmax"] = "non-negative"  # per class, or one class per image
    softmax_weight: float = 1.0  # of the terms on unlabelled images in the softmax risk

    can_be_exclusive: ClassVar[bool] = False  # its own form is risk = "softmax"
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "published": {"risk": "softmax", "weighting": "uniform", "positive_weight": "none"}
    }

    def __post_init__(self) -> None:
        if self.prior is not None and not all(0 < share < 1 for share in self.prior):
            raise UserError(f"method.prior must be between 0 and 1, found {self.prior}")

    def model_spec(self, wanted: ModelSpec) -> ModelSpec:
        return wanted.with_softmax() if self.risk == "softmax" else wanted

    def init_client(self, data: ClientData) -> State:
        positives, annotated = data.positive_counts(), data.annotated_counts()
        positive_only = (positives > 0) & (positives == annotated) & (annotated < len(data))
        owned = positives > 0 if self.risk == "softmax" else positive_only
        if self.risk == "softmax":
            data.require_one_class_per_image("set method.risk to 'non-negative'")
        prior = self._prior(data, owned)
        return super().init_client(data) | {"owned": owned, "prior": prior}

    def activity(self, data: ClientData, state: State) -> Activity:
        return {"classes with positives only": int(state["owned"].sum())}

    def why_idle(self, what: str, size: RunSize) -> str:
        return "every class with annotated positives has annotated negatives, so this is FedAvg-PL"

    def _prior(self, data: ClientData, owned: Tensor) -> Tensor:
        classes = len(owned)
        if self.prior is None and bool(owned.any()):
            raise UserError(
                f"client {data.name!r} has positives but no negatives in {int(owned.sum())} of "
                f"{counted(classes, 'class', 'classes')}; set method.prior to the share of "
                "positives among unannotated "
                "images, one number for all classes or one per class, such as prior = [0.1]"
            )
        shares = self.prior or (0.0,)
        if len(shares) not in (1, classes):
            raise UserError(
                f"method.prior has {counted(len(shares), 'number')} for "
                f"{counted(classes, 'class', 'classes')}; give 1 or {classes}"
            )
        return torch.tensor(shares, dtype=torch.float32).expand(classes).clone()

    def loss(self, local: Local, batch: Batch) -> Tensor:
        logits = local.model(batch.views[0]).logits
        owned: Tensor = local.state["owned"]
        prior = local.state["prior"]
        positive = batch.known & (batch.labels == 1)
        if self.risk == "softmax":
            log_shares = F.logsigmoid(logits)  # the head returns log-odds of softmax probabilities
            return softmax_risk(log_shares, positive, owned, prior, self.softmax_weight)
        labels, known = self.supervision(batch)
        binary = known & ~owned
        supervised = masked_bce(logits, labels, binary, self.class_weight(local))
        risks, has_positive = nonnegative_risk(logits, positive & owned, ~batch.known, prior)
        # All classes that are trained in this batch have the same weight.
        binary_count, owned_count = binary.any(0).sum(), (has_positive & owned).sum()
        share = binary_count / (binary_count + owned_count).clamp(min=1)
        unlabelled = risks.sum() / owned_count.clamp(min=1)
        return share * supervised + (1 - share) * unlabelled
