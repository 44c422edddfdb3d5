"""FedAvg (McMahan et al., AISTATS 2017), the baseline of the partial-label papers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from fedquilt.training.averaging import WeightedAveraging


@dataclass(frozen=True, kw_only=True)
class FedAvg(WeightedAveraging):
    """Train locally, average the changes; missing labels are treated as negatives.

    This is the common practice. With ``unannotated = "skip"`` they are masked out of the loss, as
    in the methods for partial labels.
    """

    unannotated: Literal["negative", "skip"] = "negative"  # in the loss: as negatives, or masked

    can_be_exclusive: ClassVar[bool] = True
    trains_image_by_image: ClassVar[bool] = True
