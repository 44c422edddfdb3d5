"""Parallel branches, one per class, on the shared features."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class ClassLayer(nn.Module):
    """A linear layer, batch norm and ReLU for each class, computed in one product.

    Every parameter has a row per class, so branches can be aggregated per class.
    """

    def __init__(self, class_count: int, narrow: int, wide: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(narrow)
        self.weight = nn.Parameter(torch.empty(class_count, narrow, wide).uniform_(-bound, bound))
        self.norm = nn.BatchNorm1d(class_count * wide, affine=False)
        self.scale = nn.Parameter(torch.ones(class_count, wide))
        self.shift = nn.Parameter(torch.zeros(class_count, wide))

    def forward(self, nodes: Tensor) -> Tensor:
        """Map nodes (B, C, narrow) to (B, C, wide)."""
        mixed = torch.einsum("bci,cio->bco", nodes, self.weight)
        normed = self.norm(mixed.flatten(1)).view_as(mixed)
        return torch.relu(normed * self.scale + self.shift)


class ClassBranches(nn.Module):
    """Two class layers, from features (B, d) to nodes (B, C, width)."""

    def __init__(self, feature_count: int, class_count: int, width: int) -> None:
        super().__init__()
        self.class_count = class_count
        self.first = ClassLayer(class_count, feature_count, width)
        self.second = ClassLayer(class_count, width, width)

    def forward(self, features: Tensor) -> Tensor:
        nodes: Tensor = self.second(self.first(features[:, None].expand(-1, self.class_count, -1)))
        return nodes


class ClassOutputs(nn.Module):
    """A logit from each class's node, by a row of weights and batch norm."""

    def __init__(self, class_count: int, width: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(width)
        self.weight = nn.Parameter(torch.empty(class_count, width).uniform_(-bound, bound))
        self.norm = nn.BatchNorm1d(class_count)

    def forward(self, nodes: Tensor) -> Tensor:
        logits: Tensor = self.norm((nodes * self.weight).sum(2))
        return logits
