"""Weights that stay at a client, told by how their names begin, and the layout of all others."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from fedquilt.core.tree import Weights
from fedquilt.models.network import Layout


def private_weights(weights: Mapping[str, Tensor], prefixes: tuple[str, ...]) -> Weights:
    return {name: value for name, value in weights.items() if name.startswith(prefixes)}


def shared_weights(weights: Mapping[str, Tensor], prefixes: tuple[str, ...]) -> Weights:
    return {name: value for name, value in weights.items() if not name.startswith(prefixes)}


def shared_layout(layout: Layout, prefixes: tuple[str, ...]) -> Layout:
    """The layout without what stays at home."""
    body, head, buffers = (
        tuple(name for name in group if not name.startswith(prefixes))
        for group in (layout.body, layout.head, layout.buffers)
    )
    return Layout(body=body, head=head, buffers=buffers)
