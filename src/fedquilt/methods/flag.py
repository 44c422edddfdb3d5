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
    """Clients are weighted by the variety of their positives instead of their number of images.

    A client's weight, for the whole model, is the sum over classes of (number of positives) to the
    power alpha. A client without positives has weight 0; if no client of the cohort has any, they
    are weighted by images. The paper's partition of clients, CMDA, is the partition ``k-modes``.

    The paper assumes complete labels; here only annotated positives are counted. The paper's best
    alpha is not known; the default is taken from third-party code.
    """

    positive_weight: PositiveWeight = "none"  # w_c, from annotated entries only
    weighting: Weighting = "samples"  # of clients if none of the cohort has positives
    alpha: float = 0.3  # 0: the number of classes with positives; 1: the number of positives

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise UserError(f"method.alpha must be in 0..1, found {self.alpha}")

    def survey(self, data: ClientData) -> Update:
        if not bool(data.positive_counts().any()):
            log.warning(
                "client %r has no annotated positive, so flag gives it no weight", data.name
            )
        return super().survey(data)

    @property
    def provenance(self) -> Mapping[str, Provenance]:
        whole: Counted = "any positive"
        rows: tuple[Counted, ...] = (whole, "images" if self.head_rows == "all" else "annotated")
        return {**super().provenance, "body": whole, "buffers": whole, "head": rows}

    def weight_limits(self, images: int, class_count: int) -> Mapping[str, float]:
        return dict.fromkeys(("body", "head", "buffers"), float(images * class_count))

    def client_weight(self, local: Local) -> float:
        variety = label_variety(local.data.positive_counts(), self.alpha)
        return or_negligible(variety, super().client_weight(local))


def label_variety(positives: Tensor, alpha: float) -> float:
    """Sum of count ** alpha over classes; a class without positives adds 0 even if alpha is 0."""
    counts = positives.to(torch.float64)
    return float(torch.where(counts > 0, counts**alpha, 0.0).sum())
