"""The sphere head: fixed orthonormal rows, compared with features on the unit sphere."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedquilt.core.errors import UserError
from fedquilt.core.seeding import generator_for

SLOPE = 4.0  # of the log-odds at a probability of one half
MIDDLE = 0.5  # the score that is as likely present as absent


class SphereHead(nn.Module):
    """A score per class: the row times the feature, scaled to length 1; no row is ever trained.

    The rows are a buffer: they travel with the weights, so a model that is read back has them
    whatever seed it is built with. A score of one half becomes a logit of 0.
    """

    weight: Tensor  # (C, d)

    def __init__(self, rows: Tensor) -> None:
        super().__init__()
        self.register_buffer("weight", rows)

    def forward(self, features: Tensor) -> Tensor:
        return SLOPE * (F.linear(on_sphere(features), self.weight) - MIDDLE)


def build_sphere_head(feature_count: int, class_count: int, seed: int) -> SphereHead:
    """Rows that depend on the seed alone."""
    if class_count > feature_count:
        raise UserError(
            f"a sphere head has room for as many classes as there are features, {feature_count}, "
            f"and there are {class_count} classes; use a backbone with more features, or the "
            "linear head"
        )
    draws = torch.randn(feature_count, class_count, generator=generator_for(seed, "sphere head"))
    columns, _ = torch.linalg.qr(draws)
    return SphereHead(columns.T.contiguous())


def on_sphere(features: Tensor) -> Tensor:
    """Features of length 1; a feature of zeros stays what it is."""
    return F.normalize(features, dim=1, eps=1e-6)


def scores_of(logits: Tensor) -> Tensor:
    """The scores that a sphere head made these logits of."""
    return logits / SLOPE + MIDDLE
