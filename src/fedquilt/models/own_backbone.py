"""A network of the user's own as a backbone: made by a function, without an entry in a table."""

from __future__ import annotations

import torch
from torch import nn

from fedquilt.core.errors import UserError
from fedquilt.core.own_code import recall

CONTRACT = (
    "a backbone's function takes the number of channels and returns an nn.Module from images "
    "(B, channels, height, width) to features (B, d), with d in its attribute num_features; the "
    "layer from features to classes is the head, which fedquilt adds"
)


def build_own_backbone(name: str, channels: int) -> nn.Module:
    """Call the function that was given under ``name``."""
    backbone = recall("backbone", name)(channels)
    if not isinstance(backbone, nn.Module):
        raise UserError(f"backbone {name!r} returned {type(backbone).__name__}; {CONTRACT}")
    if not isinstance(getattr(backbone, "num_features", None), int):
        raise UserError(
            f"backbone {name!r} returned a {type(backbone).__name__} without the whole number "
            f"num_features; {CONTRACT}"
        )
    return backbone


def check_features(name: str, backbone: nn.Module, image_shape: tuple[int, ...]) -> None:
    """Raise UserError unless two images become two rows of ``num_features`` numbers."""
    width = int(backbone.num_features)  # type: ignore[arg-type]
    backbone.eval()
    try:
        with torch.no_grad():
            features = backbone(torch.zeros(2, *image_shape))
    except (RuntimeError, ValueError, TypeError) as error:
        raise UserError(
            f"backbone {name!r} fails on two images of shape {image_shape}: {error}; {CONTRACT}"
        ) from error
    found = tuple(features.shape) if isinstance(features, torch.Tensor) else ()
    if found != (2, width):
        raise UserError(
            f"backbone {name!r} has num_features {width}, but two images of shape {image_shape} "
            f"become features of shape {found}, not (2, {width}); {CONTRACT}"
        )
