"""The linear head: one row of weights and one bias per class."""

from __future__ import annotations

import math

from torch import nn

from fedquilt.core.seeding import generator_for


def build_head(feature_count: int, class_count: int, seed: int) -> nn.Linear:
    """Build a linear head that depends on the seed alone, not on the backbone built before it."""
    head = nn.Linear(feature_count, class_count, device="meta").to_empty(device="cpu")
    bound = 1 / math.sqrt(feature_count)
    nn.init.uniform_(head.weight, -bound, bound, generator=generator_for(seed, "head"))
    nn.init.zeros_(head.bias)
    return head
