"""Cross-attention from shared queries to the tokens of an image."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedquilt.core.errors import UserError


class CrossAttention(nn.Module):
    """Multi-head attention with input and output projections, without norm or residual.

    All images share the queries, so they are projected once. The initialisation is that of
    ``nn.MultiheadAttention``.
    """

    def __init__(self, width: int, head_count: int) -> None:
        super().__init__()
        if width % head_count:
            raise UserError(
                f"attention needs a number of features divisible by its {head_count} heads, found "
                f"{width}; use a backbone whose feature count is a multiple of {head_count}"
            )
        self.head_count = head_count
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)
        bound = math.sqrt(6 / (width + 3 * width))  # of queries, keys and values as one matrix
        for layer in (self.query, self.key_value):
            nn.init.uniform_(layer.weight, -bound, bound)
        for layer in (self.query, self.key_value, self.out):
            nn.init.zeros_(layer.bias)

    def forward(self, queries: Tensor, tokens: Tensor) -> Tensor:
        """(B, Q, d) for queries (Q, d) and tokens (B, T, d)."""
        projected, keys, values = self._projected(queries, tokens)
        found = F.scaled_dot_product_attention(projected, keys, values)
        output: Tensor = self.out(found.transpose(1, 2).flatten(2))
        return output

    def attention_weights(self, queries: Tensor, tokens: Tensor) -> Tensor:
        """Attention weights of the queries over the tokens, (B, Q, T); mean over heads."""
        projected, keys, _ = self._projected(queries, tokens)
        scores = projected @ keys.transpose(-2, -1) / math.sqrt(projected.shape[-1])
        return torch.softmax(scores, -1).mean(1)

    def _projected(self, queries: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values as (B, heads, count, d / heads)."""
        projected = self.query(queries).unflatten(-1, (self.head_count, -1)).transpose(0, 1)
        both = self.key_value(tokens).unflatten(-1, (2, self.head_count, -1))
        keys, values = both.permute(2, 0, 3, 1, 4)
        return projected.expand(tokens.shape[0], -1, -1, -1), keys, values
