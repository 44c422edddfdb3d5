"""Fixed 2D sinusoidal position encoding of a feature map."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedquilt.core.errors import UserError

LONGEST_SIDE = 256  # positions per side, for which the table is precomputed
SLOWEST = 10000.0  # the longest wavelength is 2 pi times this


class PositionEncoding(nn.Module):
    """The first half of the channels encodes the row, the second half the column."""

    table: Tensor  # (positions, d / 2)

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("table", axis_encoding(LONGEST_SIDE, channels // 2), persistent=False)

    def forward(self, feature_map: Tensor) -> Tensor:
        """Return the encoding of every position, (d, height, width)."""
        height, width = feature_map.shape[2:]
        if max(height, width) > len(self.table):
            raise UserError(
                f"the position encoding supports {len(self.table)} positions per side, and the "
                f"feature map has {height} x {width}; use smaller images, a backbone with a "
                "smaller feature map, or position_code = false"
            )
        rows = self.table[:height].T[:, :, None].expand(-1, -1, width)
        columns = self.table[:width].T[:, None, :].expand(-1, height, -1)
        return torch.cat((rows, columns))


def axis_encoding(positions: int, channels: int) -> Tensor:
    """(positions, channels): alternating sine and cosine, with wavelengths that grow by channel."""
    waves = SLOWEST ** (torch.arange(0, channels, 2, dtype=torch.float64) / channels)
    angles = torch.arange(positions, dtype=torch.float64)[:, None] / waves
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(1).to(torch.float32)
