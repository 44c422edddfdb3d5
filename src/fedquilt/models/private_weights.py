"""Private weights: entries that stay at the client, selected by the prefixes of their names."""

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
    """Return the layout without the private entries."""
    body, head, buffers, fixed = (
        tuple(name for name in group if not name.startswith(prefixes))
        for group in (layout.body, layout.head, layout.buffers, layout.fixed)
    )
    return Layout(body=body, head=head, buffers=buffers, fixed=fixed)
