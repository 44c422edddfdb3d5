"""A graph network whose messages depend on the edge: edge-conditioned convolution (NNConv)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

EDGE_NUMBERS = 4  # attributes of an edge


def edge_rates(labels: Tensor, known: Tensor) -> Tensor:
    """(C, C, 4): how often two labels are both present, both absent, only first, only second.

    Counted over the images in which both are annotated; zeros where there are none.
    """
    present = (known & (labels == 1)).to(torch.float64)
    absent = (known & (labels == 0)).to(torch.float64)
    pairs = ((present, present), (absent, absent), (present, absent), (absent, present))
    counts = torch.stack([first.T @ second for first, second in pairs], dim=2)
    return (counts / counts.sum(2, keepdim=True).clamp(min=1)).to(torch.float32)


class EdgeConvolution(nn.Module):
    """Every class hears the mean of all others' messages, and itself.

    A message passes a matrix that a small network makes of the edge's attributes, which are the
    same for all images; images do not hear each other.
    """

    def __init__(self, narrow: int, wide: int, *, bias: bool) -> None:
        super().__init__()
        self.shape = (narrow, wide)
        self.edge = nn.Linear(EDGE_NUMBERS, narrow * wide)
        self.root = nn.Linear(narrow, wide, bias=bias)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        """Nodes (B, C, narrow) become (B, C, wide); edges are (C, C, 4), from first to second."""
        count = len(edges)
        matrices = torch.tanh(self.edge(edges)).view(count, count, *self.shape)
        messages = nodes.transpose(0, 1)[:, None] @ matrices  # (from, to, B, wide)
        itself = torch.eye(count, dtype=torch.bool, device=edges.device)[:, :, None, None]
        heard = torch.where(itself, 0.0, messages).sum(0) / max(count - 1, 1)
        told: Tensor = heard.transpose(0, 1) + self.root(nodes)
        return told


class EdgeBlock(nn.Module):
    """x + ReLU(batch norm(convolution(x))), with one norm for the nodes of all classes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.convolution = EdgeConvolution(width, width, bias=False)  # the norm would undo one
        self.norm = nn.BatchNorm1d(width)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        moved = self.convolution(nodes, edges)
        return nodes + torch.relu(self.norm(moved.flatten(0, 1)).view_as(moved))


class EdgeGraph(nn.Module):
    """Two blocks, then a convolution to one number per class: its logit."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = EdgeBlock(width)
        self.second = EdgeBlock(width)
        self.output = EdgeConvolution(width, 1, bias=True)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        logits: Tensor = self.output(self.second(self.first(nodes, edges), edges), edges)
        return logits.squeeze(2)
