"""A trained convolution from one channel to the three that a pretrained backbone expects."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedquilt.models.backbones import feature_count


class ColourStem(nn.Module):
    """1 x 1 convolution, batch norm and ReLU before a backbone."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.colour = nn.Sequential(nn.Conv2d(1, 3, 1), nn.BatchNorm2d(3), nn.ReLU())
        self.encoder = encoder
        self.num_features = feature_count(encoder)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.encoder(self.colour(images))
        return features


def with_colour_stem(backbone: nn.Module, seed: int) -> ColourStem:
    """Add a stem initialised from the seed alone.

    It reseeds torch's default generator; the caller must fork that first.
    """
    torch.default_generator.manual_seed(seed)
    return ColourStem(backbone)
