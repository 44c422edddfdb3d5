"""Label attention: a feature per class, by attention over the image's positions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class LabelAttention(nn.Module):
    """Low-rank bilinear attention between positions and label embeddings.

    A position x has the score w . W_h tanh(W_1 x * W_2 e) for a label e. A class's feature is the
    mean over positions, weighted by a softmax of the scores.
    """

    def __init__(self, feature_count: int, label_width: int, width: int) -> None:
        super().__init__()
        self.places = nn.Linear(feature_count, width, bias=False)  # W_1
        self.labels = nn.Linear(label_width, width, bias=False)  # W_2
        self.mix = nn.Linear(width, width, bias=False)  # W_h
        self.score = nn.Linear(width, 1, bias=False)  # w

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        """Return (B, C, d) from tokens (B, T, d) and label embeddings (C, e)."""
        joint = torch.tanh(self.places(tokens)[:, None] * self.labels(labels)[:, None])
        # W_h and w are linear, so they are applied as one row. A bias of either would be the same
        # for all positions and cancel in the softmax.
        scores = F.linear(joint, self.score.weight @ self.mix.weight).squeeze(3)  # (B, C, T)
        return scores.softmax(2) @ tokens
