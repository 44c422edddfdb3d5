"""Cross-attention: what each query finds among the tokens of an image."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedquilt.core.errors import UserError


class CrossAttention(nn.Module):
    """Multi-head attention with learnt projections in and out, and nothing around it.

    All images share the queries, which are therefore projected once. The numbers start as those of
    ``nn.MultiheadAttention`` do.
    """

    def __init__(self, width: int, head_count: int) -> None:
        super().__init__()
        if width % head_count:
            raise UserError(
                f"attention cuts features into {head_count} equal parts, and {width} features "
                f"cannot be cut so; use a backbone whose features are a multiple of {head_count}"
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
        asked, keys, values = self._projected(queries, tokens)
        found = F.scaled_dot_product_attention(asked, keys, values)
        mixed: Tensor = self.out(found.transpose(1, 2).flatten(2))
        return mixed

    def shares(self, queries: Tensor, tokens: Tensor) -> Tensor:
        """How a query's attention is spread over the tokens, (B, Q, T); the mean over heads."""
        asked, keys, _ = self._projected(queries, tokens)
        match = asked @ keys.transpose(-2, -1) / math.sqrt(asked.shape[-1])
        return torch.softmax(match, -1).mean(1)

    def _projected(self, queries: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values as (B, heads, count, d / heads)."""
        asked = self.query(queries).unflatten(-1, (self.head_count, -1)).transpose(0, 1)
        both = self.key_value(tokens).unflatten(-1, (2, self.head_count, -1))
        keys, values = both.permute(2, 0, 3, 1, 4)
        return asked.expand(len(tokens), -1, -1, -1), keys, values
