"""Projection of a backbone's features, for methods that compare features across models."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedquilt.core.seeding import seed_for
from fedquilt.models.backbones import feature_count


class Projected(nn.Module):
    """An encoder followed by two linear layers; the head takes their output."""

    def __init__(self, encoder: nn.Module, width: int) -> None:
        super().__init__()
        features = feature_count(encoder)
        self.encoder = encoder
        self.projection = nn.Sequential(
            nn.Linear(features, features), nn.ReLU(), nn.Linear(features, width)
        )
        self.num_features = width

    def forward(self, images: Tensor) -> Tensor:
        projected: Tensor = self.projection(self.encoder(images))
        return projected


def project(encoder: nn.Module, width: int, seed: int) -> Projected:
    """Add a projection initialised from the seed alone.

    It reseeds torch's default generator; the caller must fork that first.
    """
    torch.default_generator.manual_seed(seed_for(seed, "projection"))
    return Projected(encoder, width)
