"""Small networks for small canvases and tables: they train in seconds on a laptop."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedquilt.errors import UserError


class SmallCNN(nn.Module):
    """Three convolutions (16, 32, 64 channels) and global max pooling, for about 16 px.

    Without batch norm, so that averaging clients averages all there is.
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
        # A CPU pools six times faster with the channels of a pixel side by side.
        hidden = hidden.contiguous(memory_format=torch.channels_last)
        hidden = F.relu(F.max_pool2d(self.conv2(hidden), 2))
        last: Tensor = self.conv3(hidden)
        return last


class ResidualBlock(nn.Module):
    """Two 3 x 3 convolutions with batch norm beside a 1 x 1 shortcut; halves the canvas."""

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
    """Two hidden layers of 128 for feature tables: images of one pixel, a channel per feature."""

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
