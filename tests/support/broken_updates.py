"""Ways to break one part of an update."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from fedquilt.core.payload import Gather, Mean, Part, Sum, weight_of
from fedquilt.core.tree import leaves, tree_map, unflatten

Break = Callable[[Part], Iterator[Part]]


def with_value(part: Part, spoil: Callable[[Tensor], Tensor]) -> Iterator[Part]:
    """The part with its first floating-point tensor spoilt, if it has one."""
    flat = dict(leaves(part.value))
    for path, leaf in flat.items():
        if leaf.is_floating_point() and leaf.numel():
            yield replace(part, value=unflatten({**flat, path: spoil(leaf)}))
            return


def with_one(number: float, part: Part) -> Iterator[Part]:
    def spoil(leaf: Tensor) -> Tensor:
        spoilt = leaf.clone()
        spoilt.view(-1)[-1] = number
        return spoilt

    return with_value(part, spoil)


def with_weight(number: float, part: Part) -> Iterator[Part]:
    """The part with a weight spoilt, its last one where there are several."""
    if isinstance(part, Mean):
        weight = weight_of(part).clone()
        weight.view(-1)[-1] = number
        yield Mean(part.value, weight)
    elif isinstance(part, Gather) and part.is_weight:
        yield replace(part, value=tree_map(lambda leaf: torch.full_like(leaf, number), part.value))


def with_grown_weight(part: Part) -> Iterator[Part]:
    """The part with 1e9 for each of its weights above 0."""
    if isinstance(part, Mean) and bool((weight_of(part) > 0).any()):
        weight = weight_of(part)
        yield Mean(part.value, torch.where(weight > 0, 1e9, weight))
    elif isinstance(part, Gather):
        yield from with_weight(1e9, part)


def with_norm_times(number: float, part: Part) -> Iterator[Part]:
    """The part, scaled as a whole, if it holds anything to scale."""
    values = [leaf for _, leaf in leaves(part.value) if leaf.is_floating_point()]
    if any(bool((leaf != 0).any()) for leaf in values):
        yield replace(
            part,
            value=tree_map(
                lambda leaf: leaf * number if leaf.is_floating_point() else leaf, part.value
            ),
        )


def with_weight_shape(part: Part) -> Iterator[Part]:
    if isinstance(part, Mean):
        yield Mean(part.value, torch.ones(weight_of(part).numel() + 1))


def with_other_kind(part: Part) -> Iterator[Part]:
    yield Gather(part.value) if isinstance(part, Sum | Mean) else Sum(part.value)


def with_other_name(part: Part) -> Iterator[Part]:
    yield replace(part, value={"sent": part.value, "not asked for": torch.zeros(())})
