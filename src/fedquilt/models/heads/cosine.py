"""The cosine head: cosines between features and trained class rows."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedquilt.core.seeding import generator_for
from fedquilt.models.heads.sphere import MIDDLE, SLOPE, on_sphere


class CosineHead(nn.Module):
    """The score of a class is the cosine between the feature and the class's row.

    The logit is 4 (score - 1/2), as in the sphere head, so it ranks as the cosine does. Its
    sigmoid is not a calibrated probability; choose thresholds on validation data.
    """

    def __init__(self, rows: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(rows)  # (C, d)

    def forward(self, features: Tensor) -> Tensor:
        return SLOPE * (F.linear(on_sphere(features), on_sphere(self.weight)) - MIDDLE)


def build_cosine_head(feature_count: int, class_count: int, seed: int) -> CosineHead:
    """Build the head with random unit rows that depend on the seed alone."""
    draws = torch.randn(class_count, feature_count, generator=generator_for(seed, "cosine head"))
    return CosineHead(on_sphere(draws))
