"""Fixed point: parts as integers modulo 2^64, whose sums do not depend on the order of arrival.

Addition of floats is not associative, addition of integers modulo 2^64 is. So engines, sites and
masks that add the same integers in any order get the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from fedquilt.core.bounds import OutOfBounds
from fedquilt.core.errors import UserError
from fedquilt.core.payload import Gather, Mean, Part, Sum, Update, over_leading_axes, weight_of
from fedquilt.core.tree import Tree, flatten, leaves, tree_map, zeros_like

# Of floats; of integers modulo 2^64; of such integers behind masks, so that the server learns the
# sum only. A simulation has no masks: there "secure" adds the same integers as "ring".
Summation: TypeAlias = Literal["plain", "ring", "secure"]
SUM_BITS = 62  # of the largest sum; one of 64 is the sign, one is spare for rounding


@dataclass(frozen=True)
class PartScale:
    """How a part becomes integers: a value x times its weight is sent as round(x 2^value_bits)."""

    largest: float  # absolute value; a larger one is refused
    value_bits: int
    weight_bits: int = 0  # of the weight of a mean

    @classmethod
    def of(cls, part: Part, largest: float, weights: Iterable[float]) -> PartScale:
        """The finest scale on which the sum over all clients fits.

        Args:
            part: which kind of part it is.
            largest: no value is larger.
            weights: the largest weight of every client; of a sum, how often it counts.
        """
        total = math.fsum(weights)
        weight_bits = fraction_bits(total) if isinstance(part, Mean) else 0
        return cls(largest, fraction_bits(total * largest), weight_bits)


Scales: TypeAlias = Mapping[str, PartScale]  # by part


def fraction_bits(largest_sum: float) -> int:
    """How many bits a sum of at most this size leaves for the fraction."""
    return SUM_BITS - math.frexp(largest_sum)[1]


def refuse_gathered(expected: Update, summation: Summation) -> None:
    """Raise UserError if a part cannot be summed."""
    gathered = [name for name, part in expected.items() if isinstance(part, Gather)]
    if gathered:
        raise UserError(
            f"summation = {summation!r} adds up what clients send, but with these settings the "
            f"server needs every client's own {', '.join(map(repr, gathered))} (Gather); use "
            "summation = 'plain', or another method"
        )


def quantised(client: str, name: str, part: Part, scale: PartScale) -> dict[str, Tree]:
    """Return what is added up for a part, as new int64 tensors.

    Raise OutOfBounds for a value beyond the part's range: it could wrap around in the sum.
    """
    if isinstance(part, Gather):
        raise TypeError(f"part {name!r} is gathered and cannot be added up")
    weight = weight_of(part) if isinstance(part, Mean) else torch.ones((), dtype=torch.float64)
    _check_range(client, name, part, weight, scale)

    def integers(leaf: Tensor) -> Tensor:
        weighted = leaf.to(torch.float64) * over_leading_axes(weight.to(leaf.device), leaf)
        return _rounded(weighted, scale.value_bits)

    total: Tree = tree_map(integers, part.value)
    if isinstance(part, Sum):
        return {"total": total}
    return {"total": total, "weight": _rounded(weight, scale.weight_bits)}


def add_integers(sums: Mapping[str, Any], more: Mapping[str, Any]) -> None:
    """Add in place, modulo 2^64."""
    tree_map(lambda total, each: total.add_(each), sums, more)


def as_floats(sums: Mapping[str, Tree], scale: PartScale) -> dict[str, Tree]:
    """Return the float64 sums that the integers stand for."""
    bits = {"total": scale.value_bits, "weight": scale.weight_bits}
    return {
        key: tree_map(lambda leaf, bits=bits[key]: leaf.to(torch.float64) * 2.0**-bits, tree)
        for key, tree in sums.items()
    }


def no_integers(expected: Update) -> dict[str, dict[str, Tree]]:
    """Zero sums for every part, with the shapes that :func:`quantised` returns."""

    def zeros(tree: Tree) -> Tree:
        empty: Tree = tree_map(lambda leaf: torch.zeros_like(leaf, dtype=torch.int64), tree)
        return empty

    return {
        name: {"total": zeros(part.value)}
        | ({"weight": zeros(weight_of(part))} if isinstance(part, Mean) else {})
        for name, part in expected.items()
    }


def as_vector(integers: Mapping[str, Any]) -> Tensor:
    """Return all integers of an update as one vector, in the order of their names."""
    flat = flatten(integers)
    return torch.cat([flat[path].reshape(-1).cpu() for path in sorted(flat)])


def from_vector(vector: Tensor, expected: Update) -> dict[str, dict[str, Tree]]:
    """The inverse of :func:`as_vector` for an update like ``expected``."""
    integers = no_integers(expected)
    flat = flatten(integers)
    pieces = vector.split([flat[path].numel() for path in sorted(flat)])
    for path, piece in zip(sorted(flat), pieces):
        flat[path].copy_(piece.reshape(flat[path].shape))
    return integers


def vector_length(expected: Update) -> int:
    return sum(leaf.numel() for _, leaf in leaves(no_integers(expected)))


def resting(tree: Tree) -> Tree:
    """The change of a part without weight: in fixed point a negligible weight is 0."""
    rest: Tree = zeros_like(tree)
    return rest


def _rounded(values: Tensor, bits: int) -> Tensor:
    """Multiply by a power of two, which is exact, and round ties to even."""
    return (values * 2.0**bits).round_().to(torch.int64)


def _check_range(client: str, name: str, part: Part, weight: Tensor, scale: PartScale) -> None:
    for path, leaf in leaves(part.value):
        if not leaf.numel():
            continue
        low, high = (float(end) for end in leaf.aminmax())
        if -scale.largest <= low and high <= scale.largest:
            continue
        counted = torch.where(
            over_leading_axes(weight.to(leaf.device), leaf) > 0, leaf.to(torch.float64), 0.0
        )
        peak = float(counted.abs().max())  # NaN if any is
        if not peak <= scale.largest:
            where = f", {path!r}" if path else ""
            raise OutOfBounds(
                f"client {client!r}, part {name!r}{where}: a value of {peak:g} is beyond "
                f"{scale.largest:g}, the range of its integers; if it is right, agree on a larger "
                f"one with bounds.max_norms.{name}"
            )
