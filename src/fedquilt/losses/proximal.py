"""Squared distances to given weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor


def squared_distance(named: Iterable[tuple[str, Tensor]], anchor: Mapping[str, Tensor]) -> Tensor:
    """Sum of squares, never a norm squared: the gradient of a norm at 0 is not a number."""
    return torch.stack([(weight - anchor[name]).square().sum() for name, weight in named]).sum()


def weighted_squared_distance(
    weights: Mapping[str, Tensor], anchor: Mapping[str, Tensor], importance: Mapping[str, Tensor]
) -> Tensor:
    """Likewise, with a factor for every single weight; over the names of the anchor."""
    terms = [
        (importance[name] * (weights[name] - place).square()).sum()
        for name, place in anchor.items()
    ]
    return torch.stack(terms).sum()
