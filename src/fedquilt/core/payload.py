"""Parts of an update and how they are aggregated: Sum, Mean or Gather.

PerClient is the one special part of a broadcast: each client receives its own value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor

from fedquilt.core.tree import Tree, byte_count, copies_of, map_together, moved, tree_map

FEW = 3  # tensors that are added one by one


@dataclass(frozen=True)
class Sum:
    """The server learns the sum over the cohort and nothing else."""

    value: Tree
    has_noise: bool = False  # so that a disclosure floor need not withhold it


@dataclass(frozen=True)
class Mean:
    """The server learns the weighted mean and the summed weight.

    A tensor weight applies to the leading axes of every leaf, e.g. one weight per class for head
    rows of shape (classes, features).
    """

    value: Tree
    weight: float | Tensor
    needs_weight: bool = False  # refuse an update in which all weights are 0
    has_noise: bool = False  # so that a disclosure floor need not withhold it
    sent_bytes: int | None = None  # of the value, if it travelled in another form


@dataclass(frozen=True)
class Gather:
    """The server sees every client's value, so secure aggregation is not possible."""

    value: Tree
    any_length: bool = False  # the first axis of every leaf may differ from client to client
    is_weight: bool = False  # clients are weighted by it, so it is checked as a weight


@dataclass(frozen=True)
class PerClient:
    """A part of a broadcast with one value per client; a client receives only its own."""

    values: Mapping[str, Tree]  # by client
    newcomer: Tree  # for a client without a value so far


Part: TypeAlias = Sum | Mean | Gather
Update: TypeAlias = Mapping[str, Part]


def summands(part: Sum | Mean) -> dict[str, Tree]:
    """Return what is added up for a part: new float64 tensors, with a mean already weighted."""
    if isinstance(part, Sum):
        return {"total": map_together(partial(copies_of, dtype=torch.float64), part.value)}
    weight = weight_of(part).clone()
    if weight.ndim:
        return {"total": tree_map(partial(_weighted, weight), part.value), "weight": weight}

    def weighted(values: list[Tensor]) -> list[Tensor]:
        return [_weighted(weight, value) for value in values]

    return {"total": map_together(weighted, part.value), "weight": weight}


def add_to(sums: dict[str, Tree], part: Sum | Mean) -> None:
    """Add a part in place to the sums that :func:`summands` returned for the first client."""
    if isinstance(part, Sum):
        _add_scaled(sums["total"], part.value, 1.0)
        return
    weight = weight_of(part)
    if weight.ndim == 0:
        _add_scaled(sums["total"], part.value, weight.item())
    else:
        tree_map(lambda total, leaf: total.add_(_weighted(weight, leaf)), sums["total"], part.value)
    tree_map(lambda total, more: total.add_(more), sums["weight"], weight)


def _add_scaled(totals: Tree, values: Tree, scale: float) -> None:
    def grow(places: list[Tensor], more: list[Tensor]) -> list[Tensor]:
        if len(places) <= FEW:  # flat: each is read once, in its own dtype
            for place, value in zip(places, more):
                place.add_(value, alpha=scale)
            return places
        if places[0].is_cuda:  # one fused launch needs equal dtypes
            more = copies_of(more, torch.float64)
        torch._foreach_add_(places, more, alpha=scale)
        return places

    map_together(grow, totals, values)


def _weighted(weight: Tensor, leaf: Tensor) -> Tensor:
    return leaf.to(torch.float64) * over_leading_axes(weight, leaf)


def placed(update: Update, device: torch.device) -> Update:
    """Return the update on ``device``; weights go to the host, where reading them is free."""
    return {name: _placed(part, device) for name, part in update.items()}


def _placed(part: Part, device: torch.device) -> Part:
    value = moved(part.value, device)
    if not isinstance(part, Mean):
        return replace(part, value=value)
    return replace(part, value=value, weight=weight_of(part).cpu())


def addressed(payload: Mapping[str, Tree | PerClient], client: str) -> dict[str, Tree]:
    """Return the broadcast as ``client`` receives it."""
    return {
        name: part.values.get(client, part.newcomer) if isinstance(part, PerClient) else part
        for name, part in payload.items()
    }


def shared_and_own(
    payload: Mapping[str, Tree | PerClient],
) -> tuple[dict[str, Tree], dict[str, PerClient]]:
    """Split a broadcast into the parts all clients share and the PerClient parts."""
    own = {name: part for name, part in payload.items() if isinstance(part, PerClient)}
    shared = {name: part for name, part in payload.items() if not isinstance(part, PerClient)}
    return shared, own


def broadcast_bytes(payload: Mapping[str, Tree | PerClient], cohort: Sequence[str]) -> int:
    """Return the bytes the cohort receives; shared parts are counted once per client."""
    shared, own = shared_and_own(payload)
    return len(cohort) * byte_count(shared) + sum(byte_count(addressed(own, c)) for c in cohort)


def update_bytes(update: Update) -> int:
    return sum(_part_bytes(part) for part in update.values())


def _part_bytes(part: Part) -> int:
    if not isinstance(part, Mean):
        return byte_count(part.value)
    value = byte_count(part.value) if part.sent_bytes is None else part.sent_bytes
    return value + byte_count(weight_of(part))


def weight_of(part: Mean) -> Tensor:
    return torch.as_tensor(part.weight, dtype=torch.float64)


def over_leading_axes(weight: Tensor, leaf: Tensor) -> Tensor:
    """Reshape a weight so that it broadcasts over the leading axes of ``leaf``.

    A scalar weight is returned as it is: it may stay on the host while the leaf is on a GPU. Any
    other goes where the leaf is.
    """
    if weight.ndim == 0:
        return weight
    if weight.shape != leaf.shape[: weight.ndim]:
        raise ValueError(
            f"a weight of shape {tuple(weight.shape)} does not match the leading axes of a "
            f"value of shape {tuple(leaf.shape)}"
        )
    return weight.to(leaf.device).reshape(weight.shape + (1,) * (leaf.ndim - weight.ndim))
