"""Trees whose tensors stay in place, so that a recorded step finds other numbers there."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from fedquilt.tree import Tree, flatten, leaves, tree_map, write_all

Signature: TypeAlias = tuple[tuple[str, torch.Size, torch.dtype], ...]


def signature(tree: Tree) -> Signature:
    """Names, shapes and dtypes: what must be equal for numbers to go into the same places."""
    return tuple((path, leaf.shape, leaf.dtype) for path, leaf in leaves(tree))


class FixedTree(NamedTuple):
    """Places, and what fits into them."""

    tree: Any  # as a caller knows its shape
    signature: Signature


def fixed_copy(tree: Tree, *, channels_last: bool) -> Tree:
    """A tree of the same numbers in memory of its own."""

    def own(leaf: Tensor) -> Tensor:
        format_ = torch.channels_last if channels_last and leaf.ndim == 4 else None
        return leaf.detach().clone(memory_format=format_ or torch.preserve_format)

    copied: Tree = tree_map(own, tree)
    return copied


def fill(places: Tree, values: Tree) -> None:
    """Write values into their places; a value that is in its place already costs nothing."""
    targets, sources = [], []
    found, fixed = flatten(values), flatten(places)
    taken = {id(place) for place in fixed.values()}
    for path, place in fixed.items():
        value = found[path]
        if value is not place and value.numel():
            targets.append(place)
            # A value that lies in another place must be read before that place is written.
            sources.append(value.detach().clone() if id(value) in taken else value.detach())
    write_all(targets, sources)
