"""Backbones by name: small built-in networks and all timm models."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedquilt.core.errors import UserError, nearest
from fedquilt.core.own_code import is_own
from fedquilt.models.own_backbone import build_own_backbone


class SmallCNN(nn.Module):
    """Three convolutions (16, 32, 64 channels) and global max pooling, for about 16 px.

    It has no batch norm, so there are no running statistics to aggregate.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.conv3 = nn.Conv2d(32, 64, 3, padding=1)
        self.num_features = 64

    def forward(self, images: Tensor) -> Tensor:
        return F.relu(self._last_convolution(images).amax((2, 3)))

    def forward_features(self, images: Tensor) -> Tensor:
        return F.relu(self._last_convolution(images))

    def _last_convolution(self, images: Tensor) -> Tensor:
        hidden = F.relu(self.conv1(images))
        # On a CPU, max pooling is six times faster in channels-last memory format.
        if not is_transformed(hidden):  # torch.func has one memory format
            hidden = hidden.contiguous(memory_format=torch.channels_last)
        hidden = F.relu(F.max_pool2d(self.conv2(hidden), 2))
        last: Tensor = self.conv3(hidden)
        return last


class ResidualBlock(nn.Module):
    """Two 3 x 3 convolutions with batch norm and a 1 x 1 shortcut; halves the resolution."""

    def __init__(self, narrow: int, wide: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(narrow, wide, 3, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(wide)
        self.conv2 = nn.Conv2d(wide, wide, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(wide)
        self.shortcut = nn.Conv2d(narrow, wide, 1, stride=2, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        hidden = F.relu(self.bn1(self.conv1(images)))
        return F.relu(self.bn2(self.conv2(hidden)) + self.shortcut(images))


class SmallResNet(nn.Module):
    """A stem and three residual blocks (32, 64, 128 channels), for about 28 to 64 px."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 32, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(32)
        self.blocks = nn.Sequential(
            ResidualBlock(32, 32), ResidualBlock(32, 64), ResidualBlock(64, 128)
        )
        self.num_features = 128

    def forward(self, images: Tensor) -> Tensor:
        return self.forward_features(images).mean((2, 3))

    def forward_features(self, images: Tensor) -> Tensor:
        hidden: Tensor = self.blocks(F.relu(self.bn1(self.conv1(images))))
        return hidden


class MLP(nn.Module):
    """Two hidden layers of 128, for feature tables: 1 x 1 pixel, one channel per feature."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layer1 = nn.Linear(channels, 128)
        self.layer2 = nn.Linear(128, 128)
        self.num_features = 128

    def forward(self, images: Tensor) -> Tensor:
        if images.shape[2:] != (1, 1):
            raise UserError(
                "backbone 'mlp' reads feature tables, stored as images of 1 x 1 pixel with one "
                f"channel per feature; found {images.shape[2]} x {images.shape[3]} pixels; "
                "use 'small-cnn' for images"
            )
        return torch.relu(self.layer2(torch.relu(self.layer1(images.flatten(1)))))


def is_transformed(tensor: Tensor) -> bool:
    """Whether this is a tensor inside vmap or grad of torch.func."""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(tensor))


BUILT_IN: dict[str, Callable[[int], nn.Module]] = {
    "mlp": MLP,
    "small-cnn": SmallCNN,
    "small-resnet": SmallResNet,
}


def build_backbone(
    name: str, channels: int, *, small_stem: bool = False, pretrained: bool = False
) -> nn.Module:
    """Build a module from images to features (B, d); see ``feature_count`` for d.

    Args:
        name: a built-in name, a timm model name, or the name of a user's own function.
        small_stem: use stride 1 in a ResNet's first convolution, for images of 64 px and below;
            its max pooling stays.
        pretrained: let timm download pretrained weights.
    """
    if name in BUILT_IN or is_own(name):
        if small_stem or pretrained:
            found = "small_stem" if small_stem else "weights 'timm'"
            why = "is your own" if is_own(name) else "is for small images and trained from scratch"
            raise UserError(
                f"backbone {name!r} {why}, but {found} was requested; remove that setting or use a "
                "timm model such as 'resnet18'"
            )
        if is_own(name):
            return build_own_backbone(name, channels)
        return BUILT_IN[name](channels)
    backbone = _timm_backbone(name, channels, pretrained)
    if small_stem:
        _keep_resolution(backbone, name)
    return backbone


def feature_count(backbone: nn.Module) -> int:
    """Return the width d of the features; in timm a head's hidden layer may change it."""
    width = getattr(backbone, "head_hidden_size", None) or backbone.num_features
    return int(width)  # type: ignore[arg-type]


def _timm_backbone(name: str, channels: int, pretrained: bool) -> nn.Module:
    import timm  # slow to import, and the built-in networks do not need it

    if not timm.is_model(name):
        known = {*timm.list_models(), *BUILT_IN}
        hint = nearest(name, known)
        if not hint.startswith("; did"):  # do not list a thousand names
            hint = f"; known: {', '.join(BUILT_IN)} and those of timm.list_models()"
        raise UserError(f"unknown backbone {name!r}{hint}")
    try:
        backbone: nn.Module = timm.create_model(
            name, num_classes=0, in_chans=channels, pretrained=pretrained
        )
    except Exception as error:
        # The network, the hub and timm raise different errors if a download fails.
        if not pretrained:
            raise
        raise UserError(
            f"timm could not load pretrained weights for {name!r} "
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
            "set small_stem to false or use a ResNet such as 'resnet18'"
        )
    first = next(layer for layer in backbone.conv1.modules() if isinstance(layer, nn.Conv2d))
    first.stride = (1, 1)
