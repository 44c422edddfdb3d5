"""Feature maps: a backbone's features before pooling, for heads that use spatial positions."""

from __future__ import annotations

import math

from torch import Tensor, nn

from fedquilt.core.errors import UserError


class MapHead(nn.Module):
    """A head on the feature map, (B, d, height, width); its ``forward`` returns an Output."""


def map_width(backbone: nn.Module) -> int:
    """Return the channels of the map; some timm models change the width after pooling."""
    return int(backbone.num_features)  # type: ignore[arg-type]


def feature_map(backbone: nn.Module, images: Tensor) -> Tensor:
    """Return the feature map (B, d, height, width) of a backbone that has one."""
    forward = getattr(backbone, "forward_features", None)
    if forward is None:
        raise UserError(
            f"backbone {type(backbone).__name__} has no feature map, which this head needs; "
            "use 'small-cnn', 'small-resnet' or a timm model such as 'resnet18', and neither "
            "projection nor colour stem"
        )
    features: Tensor = forward(images)
    width = map_width(backbone)
    if features.ndim == 3:  # a transformer's tokens, possibly after a class token
        patches = features[:, int(getattr(backbone, "num_prefix_tokens", 0)) :]
        side = math.isqrt(patches.shape[1])
        return patches.transpose(1, 2).reshape(patches.shape[0], width, side, -1)
    return features if features.shape[1] == width else features.permute(0, 3, 1, 2)
