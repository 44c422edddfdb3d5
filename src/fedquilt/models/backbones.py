"""Backbones by name: the small built-in networks, and every model of timm."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from fedquilt.errors import UserError, nearest
from fedquilt.models.small import MLP, SmallCNN, SmallResNet

BUILT_IN: dict[str, Callable[[int], nn.Module]] = {
    "mlp": MLP,
    "small-cnn": SmallCNN,
    "small-resnet": SmallResNet,
}


def build_backbone(
    name: str, channels: int, *, small_stem: bool = False, pretrained: bool = False
) -> nn.Module:
    """Build images -> (B, d) features; see ``feature_count`` for d.

    Args:
        name: a built-in name, or any name that timm knows.
        small_stem: for canvases of 64 px and below, keep the resolution in a ResNet's first
            convolution (stride 1); its max pooling stays.
        pretrained: let timm download its weights.
    """
    if name in BUILT_IN:
        if small_stem or pretrained:
            found = "small_stem" if small_stem else "weights 'timm'"
            raise UserError(
                f"backbone {name!r} is built for small canvases and trained from scratch, but "
                f"{found} was asked for; drop that setting or name a timm model such as 'resnet18'"
            )
        return BUILT_IN[name](channels)
    backbone = _timm_backbone(name, channels, pretrained)
    if small_stem:
        _keep_resolution(backbone, name)
    return backbone


def feature_count(backbone: nn.Module) -> int:
    """The width d of the features; timm counts a head's hidden layer apart."""
    width = getattr(backbone, "head_hidden_size", None) or backbone.num_features
    return int(width)  # type: ignore[arg-type]


def _timm_backbone(name: str, channels: int, pretrained: bool) -> nn.Module:
    import timm  # takes seconds, and the built-in networks do without

    if not timm.is_model(name):
        known = {*timm.list_models(), *BUILT_IN}
        hint = nearest(name, known)
        if not hint.startswith("; did"):  # a thousand names would bury the message
            hint = f"; known: {', '.join(BUILT_IN)} and what timm.list_models() returns"
        raise UserError(f"unknown backbone {name!r}{hint}")
    try:
        backbone: nn.Module = timm.create_model(
            name, num_classes=0, in_chans=channels, pretrained=pretrained
        )
    except Exception as error:
        # The download fails with whatever the network, the hub or timm raises.
        if not pretrained:
            raise
        raise UserError(
            f"timm could not deliver pretrained weights for {name!r} "
            f"({type(error).__name__}: {str(error).partition(chr(10))[0]}); "
            "fetch the model's .safetensors file on a machine with network access and set weights "
            "to its path, or set weights to 'random'"
        ) from error
    return backbone


def _keep_resolution(backbone: nn.Module, name: str) -> None:
    from timm.models.resnet import ResNet

    if not isinstance(backbone, ResNet):
        raise UserError(
            f"small_stem is for ResNets, and backbone {name!r} is a {type(backbone).__name__}; "
            "set small_stem to false or name a ResNet such as 'resnet18'"
        )
    first = next(layer for layer in backbone.conv1.modules() if isinstance(layer, nn.Conv2d))
    first.stride = (1, 1)
