"""Graph network with edge-conditioned convolutions (NNConv)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

EDGE_FEATURES = 4  # rates of both present, both absent, only first, only second


def edge_rates(labels: Tensor, known: Tensor, of_images: bool = False) -> Tensor:
    """(C, C, 4): rates at which two labels are both present, both absent, only first, only second.

    Over the images in which both are annotated; zeros if there are none.

    Args:
        of_images: take the first C images for the classes, as the public code of the site-aware
            method does: count classes that two images share, over the number of images.
    """
    present = (known & (labels == 1)).to(torch.float64)
    absent = (known & (labels == 0)).to(torch.float64)
    if of_images:
        count = labels.shape[1]
        lacking = max(0, count - len(labels))  # zeros in place of images that a site lacks
        present, absent = (F.pad(each[:count].T, (0, lacking)) for each in (present, absent))
    pairs = ((present, present), (absent, absent), (present, absent), (absent, present))
    counts = torch.stack([first.T @ second for first, second in pairs], dim=2)
    whole = max(len(labels), 1) if of_images else counts.sum(2, keepdim=True).clamp(min=1)
    return (counts / whole).to(torch.float32)


class EdgeConvolution(nn.Module):
    """Every class receives the mean of the other classes' messages, plus a projection of itself.

    A message is multiplied by a matrix that a linear layer computes from the edge features, which
    are the same for all images. Images are independent.
    """

    def __init__(self, narrow: int, wide: int, *, bias: bool) -> None:
        super().__init__()
        self.shape = (narrow, wide)
        self.edge = nn.Linear(EDGE_FEATURES, narrow * wide)
        self.root = nn.Linear(narrow, wide, bias=bias)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        """Nodes (B, C, narrow) become (B, C, wide); edges are (C, C, 4), from first to second."""
        count = edges.shape[0]
        matrices = torch.tanh(self.edge(edges)).view(count, count, *self.shape)
        messages = nodes.transpose(0, 1)[:, None] @ matrices  # (from, to, B, wide)
        diagonal = torch.eye(count, dtype=torch.bool, device=edges.device)[:, :, None, None]
        received = torch.where(diagonal, 0.0, messages).sum(0) / max(count - 1, 1)
        output: Tensor = received.transpose(0, 1) + self.root(nodes)
        return output


class EdgeBlock(nn.Module):
    """x + ReLU(batch norm(convolution(x))), with one batch norm for all classes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.convolution = EdgeConvolution(width, width, bias=False)  # the norm would cancel a bias
        self.norm = nn.BatchNorm1d(width)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        hidden = self.convolution(nodes, edges)
        return nodes + torch.relu(self.norm(hidden.flatten(0, 1)).view_as(hidden))


class EdgeGraph(nn.Module):
    """Two blocks, then a convolution to one logit per class."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = EdgeBlock(width)
        self.second = EdgeBlock(width)
        self.output = EdgeConvolution(width, 1, bias=True)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        logits: Tensor = self.output(self.second(self.first(nodes, edges), edges), edges)
        return logits.squeeze(2)
