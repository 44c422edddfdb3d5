"""Where a place lies in a feature map, as fixed sines and cosines added to its features."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedquilt.core.errors import UserError

LONGEST_SIDE = 256  # places; the table of d / 2 numbers for each is made when a network is built
SLOWEST = 10000.0  # the longest wave is so many times 2 pi places


class PositionEncoding(nn.Module):
    """The first half of the channels tells the row, the second half the column."""

    table: Tensor  # (places, d / 2)

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("table", axis_code(LONGEST_SIDE, channels // 2), persistent=False)

    def forward(self, feature_map: Tensor) -> Tensor:
        """The code of every place, (d, height, width)."""
        height, width = feature_map.shape[2:]
        if max(height, width) > len(self.table):
            raise UserError(
                f"the position code reaches {len(self.table)} places a side, and the feature map "
                f"has {height} x {width}; use smaller images, a backbone that halves them more "
                "often, or no position code"
            )
        rows = self.table[:height].T[:, :, None].expand(-1, -1, width)
        columns = self.table[:width].T[:, None, :].expand(-1, height, -1)
        return torch.cat((rows, columns))


def axis_code(places: int, channels: int) -> Tensor:
    """(places, channels): sine and cosine in turn, of waves that grow longer by channel."""
    waves = SLOWEST ** (torch.arange(0, channels, 2, dtype=torch.float64) / channels)
    angles = torch.arange(places, dtype=torch.float64)[:, None] / waves
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(1).to(torch.float32)
