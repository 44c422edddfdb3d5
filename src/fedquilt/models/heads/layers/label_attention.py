"""A feature for every class: each label looks at the places of the image that fit it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class LabelAttention(nn.Module):
    """Low-rank bilinear attention between places and label embeddings.

    A place x scores w . W_h tanh(W_1 x * W_2 e) for a label e; a softmax over places makes the
    weights of their mean.
    """

    def __init__(self, feature_count: int, label_width: int, width: int) -> None:
        super().__init__()
        self.places = nn.Linear(feature_count, width, bias=False)  # W_1
        self.labels = nn.Linear(label_width, width, bias=False)  # W_2
        self.mix = nn.Linear(width, width, bias=False)  # W_h
        self.score = nn.Linear(width, 1, bias=False)  # w

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        """(B, C, d) from tokens (B, T, d) and label embeddings (C, e)."""
        fit = torch.tanh(self.places(tokens)[:, None] * self.labels(labels)[:, None])
        # Nothing bends between W_h and w, so one row does for both; a bias of either would be
        # the same for all places, and the softmax would drop it.
        scores = F.linear(fit, self.score.weight @ self.mix.weight).squeeze(3)  # (B, C, T)
        return scores.softmax(2) @ tokens
