"""The head of the site-aware method: a branch per class, then a graph over the classes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedquilt.core.errors import UserError
from fedquilt.models.heads.layers.class_branches import ClassBranches, ClassOutputs
from fedquilt.models.heads.layers.edge_graph import EDGE_NUMBERS, EdgeGraph


class SiteAwareHead(nn.Module):
    """Pooled features to logits.

    The attributes of the graph's edges are a buffer, so that any weights bring their own; they
    are zeros until somebody writes a site's.
    """

    edges: Tensor  # (C, C, 4)

    def __init__(self, feature_count: int, class_count: int, width: int) -> None:
        super().__init__()
        self.register_buffer("edges", torch.zeros(class_count, class_count, EDGE_NUMBERS))
        self.branches = ClassBranches(feature_count, class_count, width)
        self.graph = EdgeGraph(width)

    def forward(self, features: Tensor) -> Tensor:
        logits: Tensor = self.graph(self.branches(features), self.edges)
        return logits


def build_site_aware(
    feature_count: int, class_count: int, seed: int, *, width: int = 512, graph: bool = True
) -> nn.Module:
    """A head whose layers draw from torch's own generator, which the caller has seeded.

    Without a graph every class has a linear output of its own in its place.
    """
    if width < 1:
        raise UserError(f"head 'site-aware' needs a width of at least 1, found {width}")
    if graph:
        return SiteAwareHead(feature_count, class_count, width)
    branches = ClassBranches(feature_count, class_count, width)
    return nn.Sequential(branches, ClassOutputs(class_count, width))
