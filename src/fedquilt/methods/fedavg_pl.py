"""FedAvg-PL: FedAvg with the partial loss, a baseline of the FedMLP paper (MICCAI 2024)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedquilt.training.averaging import WeightedAveraging, or_negligible
from fedquilt.training.method import Local


@dataclass(frozen=True, kw_only=True)
class FedAvgPL(WeightedAveraging):
    """FedAvg with a loss over annotated entries only.

    A client without annotated labels has nothing to learn from and gets no weight.
    """

    can_be_exclusive: ClassVar[bool] = True
    trains_image_by_image: ClassVar[bool] = True

    def client_weight(self, local: Local) -> float:
        weight = super().client_weight(local)
        learns = self.unannotated == "negative" or local.data.has_annotations
        return or_negligible(weight * learns, weight)
