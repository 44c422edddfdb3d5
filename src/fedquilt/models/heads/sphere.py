"""The sphere head: fixed orthonormal rows times features of length 1."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedquilt.core.errors import UserError
from fedquilt.core.seeding import generator_for

SLOPE = 4.0  # of the log-odds at a probability of one half
MIDDLE = 0.5  # the score with a probability of one half


class SphereHead(nn.Module):
    """The score of a class is its row times the feature, scaled to length 1; rows are not trained.

    The rows are a buffer, so they are stored with the weights and do not depend on the seed after
    loading. A score of one half becomes a logit of 0.
    """

    weight: Tensor  # (C, d)

    def __init__(self, rows: Tensor) -> None:
        super().__init__()
        self.register_buffer("weight", rows)

    def forward(self, features: Tensor) -> Tensor:
        return SLOPE * (F.linear(on_sphere(features), self.weight) - MIDDLE)


def build_sphere_head(feature_count: int, class_count: int, seed: int) -> SphereHead:
    """Build the head with rows that depend on the seed alone."""
    if class_count > feature_count:
        raise UserError(
            f"a sphere head needs at least as many features as classes, found {feature_count} "
            f"features and {class_count} classes; use a backbone with more features, or the linear "
            "head"
        )
    draws = torch.randn(feature_count, class_count, generator=generator_for(seed, "sphere head"))
    columns, _ = torch.linalg.qr(draws)
    return SphereHead(columns.T.contiguous())


def on_sphere(features: Tensor) -> Tensor:
    """Scale features to length 1; a feature of zeros is left unchanged."""
    return F.normalize(features, dim=1, eps=1e-6)


def scores_of(logits: Tensor) -> Tensor:
    """Return the scores from which a sphere head computed these logits."""
    return logits / SLOPE + MIDDLE
