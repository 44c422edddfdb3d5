"""Graph convolution over classes, weighted by label co-occurrence."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

TINY = 1e-8
SLOPE = 0.2  # of the leaky ReLU


def label_adjacency(matrices: Tensor) -> Tensor:
    """D^-1/2 P^T D^-1/2 of co-occurrence counts (..., C, C), with D the row sums of P.

    P[a, b] is the share of images with a that also have b, and 1 on the diagonal; a class that
    was never seen has no neighbours.
    """
    seen = matrices.diagonal(dim1=-2, dim2=-1)[..., None]
    diagonal = torch.eye(matrices.shape[-1], dtype=torch.bool, device=matrices.device)
    shares = torch.where(diagonal, 1.0, matrices / (seen + TINY))  # P
    scale = shares.sum(-1).rsqrt()
    return scale[..., :, None] * shares.transpose(-1, -2) * scale[..., None, :]


class LabelGraph(nn.Module):
    """Two graph convolutions; the output is as wide as the input."""

    def __init__(self, feature_count: int, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(feature_count, width, bias=False)
        self.second = nn.Linear(width, feature_count, bias=False)

    def forward(self, nodes: Tensor, adjacency: Tensor) -> Tensor:
        """Nodes (B, C, d), with an adjacency (B, C, C) for each image."""
        hidden = F.leaky_relu(adjacency @ self.first(nodes), SLOPE)
        related: Tensor = adjacency @ self.second(hidden)
        return related
