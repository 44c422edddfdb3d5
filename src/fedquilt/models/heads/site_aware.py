"""The head of the site-aware method: a branch per class, then a graph over the classes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedquilt.core.errors import UserError
from fedquilt.models.heads.layers.class_branches import ClassBranches, ClassOutputs
from fedquilt.models.heads.layers.edge_graph import EDGE_FEATURES, EdgeGraph


class SiteAwareHead(nn.Module):
    """Pooled features to logits.

    The edge features of the graph are a buffer, so they are stored with the weights. They are
    zeros until the method sets those of a site.
    """

    edges: Tensor  # (C, C, 4)

    def __init__(self, feature_count: int, class_count: int, width: int) -> None:
        super().__init__()
        self.register_buffer("edges", torch.zeros(class_count, class_count, EDGE_FEATURES))
        self.branches = ClassBranches(feature_count, class_count, width)
        self.graph = EdgeGraph(width)

    def forward(self, features: Tensor) -> Tensor:
        logits: Tensor = self.graph(self.branches(features), self.edges)
        return logits


def build_site_aware(
    feature_count: int, class_count: int, seed: int, *, width: int = 512, graph: bool = True
) -> nn.Module:
    """Build the head; its layers use torch's default generator, which the caller has seeded.

    Without the graph, every class has a linear output instead.
    """
    if width < 1:
        raise UserError(f"head 'site-aware' needs a width of at least 1, found {width}")
    if graph:
        return SiteAwareHead(feature_count, class_count, width)
    branches = ClassBranches(feature_count, class_count, width)
    return nn.Sequential(branches, ClassOutputs(class_count, width))
