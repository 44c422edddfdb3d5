"""Norms of the parts of an update, their medians, and parts scaled to a smaller norm."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor

from fedquilt.core.flat_tree import FlatTree
from fedquilt.core.payload import Gather, Mean, Part, Update, over_leading_axes, weight_of
from fedquilt.core.tree import Tree, flatten, leaves, pieces, tree_map

DIGITS = 6  # of a median, so that rounding of a norm decides nothing
ROUNDED = 10.0 ** (1 - DIGITS)

Norms: TypeAlias = Mapping[str, Tensor]  # by part; 0 where none is known


@dataclass(frozen=True)
class EarlierNorms:
    """What the rounds before say about the norms of honest updates."""

    last: Norms = field(default_factory=dict)  # the medians of the round before
    sustained: Norms = field(default_factory=dict)  # the largest that two rounds in a row reached

    def followed_by(self, medians: Norms, *, safe: frozenset[str]) -> EarlierNorms:
        """Add a round; ``safe`` are parts of so many clients that one alone moves no median.

        One round of many liars raises no sustained norm: the smaller of two medians counts.
        """
        sustained = dict(self.sustained)
        for part in safe & self.last.keys() & medians.keys():
            both = torch.minimum(self.last[part], medians[part])
            sustained[part] = torch.maximum(self.sustained.get(part, torch.zeros_like(both)), both)
        return EarlierNorms({**self.last, **medians}, sustained)

    def facts(self) -> dict[str, Any]:
        """Return them for the history of a run."""
        return {"norms": as_lists(self.last), "sustained_norms": as_lists(self.sustained)}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> EarlierNorms:
        return cls(from_lists(facts.get("norms", {})), from_lists(facts.get("sustained_norms", {})))


def as_lists(norms: Norms) -> dict[str, Any]:
    return {part: norm.tolist() for part, norm in norms.items()}


def from_lists(lists: Mapping[str, Any]) -> dict[str, Tensor]:
    return {part: torch.tensor(norm, dtype=torch.float64) for part, norm in lists.items()}


def all_weights(part: Part) -> Tensor:
    """All weights of a part: of a mean, or what clients are weighted by."""
    if isinstance(part, Mean):
        return weight_of(part)
    if isinstance(part, Gather) and part.is_weight:
        return torch.cat([leaf.reshape(-1).double() for _, leaf in leaves(part.value)])
    return torch.zeros(0)


def norms_of(update: Update) -> dict[str, Tensor]:
    """The norm over all tensors of each part, on the host; of a mean, one for each of its weights.

    Entries without weight have norm 0: their values do not count. The device is waited for once.
    """
    norms = {name: _norms(part) for name, part in update.items()}
    if not norms:
        return {}
    lengths = [norm.numel() for norm in norms.values()]
    there = next((norm.device for norm in norms.values() if norm.is_cuda), torch.device("cpu"))
    joined = torch.cat([norm.reshape(-1).to(there) for norm in norms.values()]).cpu()
    found = zip(norms.items(), joined.split(lengths))
    return {name: each.reshape(norm.shape) for (name, norm), each in found}


def norms_by_weight(part: Part) -> Tensor:
    """The norms of one part, see :func:`norms_of`."""
    return norms_of({"part": part})["part"]


def _norms(part: Part) -> Tensor:
    weight = weight_of(part) if isinstance(part, Mean) else torch.zeros(())
    found = [
        torch.linalg.vector_norm(leaf.reshape(*weight.shape, -1), dim=-1, dtype=torch.float64)
        for leaf in (flatten(part.value).values() if weight.ndim else pieces(part.value))
        if leaf.is_floating_point() and leaf.numel()
    ]
    if not found:
        return torch.zeros(weight.shape, dtype=torch.float64)
    is_one = isinstance(part.value, FlatTree) and len(found) == 1  # one launch instead of three
    norms: Tensor = found[0] if is_one else torch.linalg.vector_norm(torch.stack(found), dim=0)
    if weight.ndim:
        norms = torch.where(weight.to(norms.device) > 0, norms, 0.0)
    return norms


def whole_norm(norms: Tensor) -> float:
    """The norm of a whole part, from those of its weights."""
    return float(torch.linalg.vector_norm(norms))


def median_norms(norms: Tensor) -> Tensor:
    """The lower median over the first axis of those above 0; 0 where there is none."""
    median = torch.where(norms > 0, norms, math.nan).nanmedian(0).values
    return rounded(torch.where(median.isnan(), 0.0, median))


def rounded(norms: Tensor) -> Tensor:
    """Round to ``DIGITS`` significant digits."""
    found = [rounded_number(norm) for norm in norms.reshape(-1).tolist()]
    return torch.tensor(found, dtype=torch.float64).reshape(norms.shape)


def rounded_number(norm: float) -> float:
    return float(f"{norm:.{DIGITS}g}")


def scaled(value: Tree, scale: Tensor) -> Tree:
    """Multiply by a factor for each leading entry; integers are left unchanged."""
    made: Tree = tree_map(
        lambda leaf: (
            (leaf.double() * over_leading_axes(scale.to(leaf.device), leaf)).to(leaf.dtype)
            if leaf.is_floating_point()
            else leaf
        ),
        value,
    )
    return made
