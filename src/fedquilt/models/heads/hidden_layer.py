"""The head with one hidden layer: wider than the features, then a row per class."""

from __future__ import annotations

import math

from torch import Tensor, nn

from fedquilt.core.errors import UserError
from fedquilt.core.seeding import generator_for
from fedquilt.models.heads.linear import build_head


class HiddenLayerHead(nn.Module):
    """Linear, layer norm, GELU, linear: the baselines' head in FedNCA-ML's experiments."""

    def __init__(self, feature_count: int, class_count: int, width: int, seed: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(feature_count, width, device="meta").to_empty(device="cpu")
        bound = 1 / math.sqrt(feature_count)
        generator = generator_for(seed, "head", "hidden")
        nn.init.uniform_(self.hidden.weight, -bound, bound, generator=generator)
        nn.init.zeros_(self.hidden.bias)
        self.norm = nn.LayerNorm(width)
        self.activation = nn.GELU()
        self.rows = build_head(width, class_count, seed)

    def forward(self, features: Tensor) -> Tensor:
        scores: Tensor = self.rows(self.activation(self.norm(self.hidden(features))))
        return scores


def build_hidden_layer_head(
    feature_count: int, class_count: int, seed: int, width: int | None = None
) -> HiddenLayerHead:
    """Build the head; the hidden layer is twice as wide as the features unless ``width`` says."""
    width = 2 * feature_count if width is None else width
    if width < 1 or width == class_count:
        raise UserError(
            f"model.head_settings.width must be positive and not the number of classes, which "
            f"marks head rows; found {width} for {class_count} classes"
        )
    return HiddenLayerHead(feature_count, class_count, width, seed)
