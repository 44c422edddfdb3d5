"""FLAG (Chang et al., arXiv 2302.13571, 2023): federated learning with label-adaptive weights."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.core.payload import Update
from fedquilt.data.client_data import ClientData
from fedquilt.losses.class_prior import PositiveWeight
from fedquilt.training.averaging import WeightedAveraging, Weighting, or_negligible
from fedquilt.training.method import Local
from fedquilt.training.provenance import Counted, Provenance

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class FLAG(WeightedAveraging):
    """FedAvg in which a client counts by the variety of its positives instead of its images.

    Its weight, one for the whole model, is the sum over classes of (positives of the class) to
    the power alpha. A client without positives does not count; where nobody in a cohort has any,
    images count. The paper's way to simulate clients, CMDA, is the partition ``k-modes``.

    Made for complete labels; of partial ones, annotated positives are counted. The paper's best
    alpha is not known here: the default is that of a third party's code.
    """

    positive_weight: PositiveWeight = "none"  # w_c, from annotated entries only
    weighting: Weighting = "samples"  # of clients that have no positives at all, among themselves
    alpha: float = 0.3  # 0: how many classes have positives; 1: how many positives there are

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise UserError(f"method.alpha must be in 0..1, found {self.alpha}")

    def survey(self, data: ClientData) -> Update:
        if not bool(data.positive_counts().any()):
            log.warning(
                "client %r has no annotated positive: under flag it does not count", data.name
            )
        return super().survey(data)

    @property
    def provenance(self) -> Mapping[str, Provenance]:
        whole: Counted = "any positive"
        rows: tuple[Counted, ...] = (whole, "images" if self.head_rows == "all" else "annotated")
        return {**super().provenance, "body": whole, "buffers": whole, "head": rows}

    def client_weight(self, local: Local) -> float:
        variety = label_variety(local.data.positive_counts(), self.alpha)
        return or_negligible(variety, super().client_weight(local))


def label_variety(positives: Tensor, alpha: float) -> float:
    """The sum of count ** alpha over classes; an absent class adds 0, also where alpha is 0."""
    counts = positives.to(torch.float64)
    return float(torch.where(counts > 0, counts**alpha, 0.0).sum())
