"""Check every name, shape, dtype and number of an update before it is added to the totals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fedquilt.core.flat_tree import FlatTree
from fedquilt.core.payload import Gather, Mean, Update, weight_of
from fedquilt.core.tree import Tree, leaves, pieces, signature

NOTHING = torch.empty(0)  # stands for an empty branch
MAX_WEIGHT = 1e9  # weights count images, labels or steps; a larger one would outweigh the cohort


class RefusedUpdate(ValueError):
    """Raised for an update that fails a check; the totals are left unchanged."""


class Checked(NamedTuple):
    """The value of a part, its place and the largest weight it will be multiplied by."""

    where: str
    value: Tree
    max_weight: float


def check_update(update: Update, expected: Update, client: str) -> None:
    """Raise RefusedUpdate, naming client, part and reason, if the update is not as expected."""
    if update.keys() != expected.keys():
        missing = sorted(expected.keys() - update.keys())
        extra = sorted(update.keys() - expected.keys())
        raise RefusedUpdate(
            f"client {client!r} sent the wrong parts: missing {missing}, unexpected {extra}"
        )
    found: list[Checked] = []
    for name, part in update.items():
        like, where = expected[name], _part_of(client, name)
        if type(part) is not type(like):
            raise RefusedUpdate(
                f"{where}: expected a {type(like).__name__}, found a {type(part).__name__}"
            )
        max_weight = 1.0
        if isinstance(part, Mean) and isinstance(like, Mean):
            max_weight = _check_weight(part, like, where)
            if like.needs_weight:
                _check_not_zero(max_weight, where)
        may_be_longer = isinstance(like, Gather) and like.any_length
        _check_leaves(part.value, like.value, where, first_axis=int(may_be_longer))
        found.append(Checked(where, part.value, max_weight))
    _check_numbers(found)
    for name, like in expected.items():
        if isinstance(like, Gather) and like.is_weight:
            where = _part_of(client, name)
            for _, weight in leaves(update[name].value):
                _check_not_zero(_check_weight_numbers(weight, where), where)


def _check_leaves(value: Tree, like: Tree, where: str, *, first_axis: int) -> None:
    """Refuse other names, shapes or dtypes; axes before ``first_axis`` may have any length."""
    if isinstance(value, FlatTree) and value.signature() == signature(like):
        return  # so the views of a client's tensors need not be made
    found, wanted = _by_path(value, where), _by_path(like, where)
    if found.keys() != wanted.keys():
        odd = sorted(found.keys() ^ wanted.keys())
        raise RefusedUpdate(f"{where}: the names differ from what was expected: {odd[:5]}")
    for path, leaf in found.items():
        target = wanted[path]
        shapes_agree = leaf.shape == target.shape or (
            leaf.ndim == target.ndim and leaf.shape[first_axis:] == target.shape[first_axis:]
        )
        if not shapes_agree or leaf.dtype != target.dtype:
            raise RefusedUpdate(
                f"{_place(where, path)}: expected {target.dtype} of shape {tuple(target.shape)}, "
                f"found {leaf.dtype} of shape {tuple(leaf.shape)}"
            )


def _check_numbers(found: Sequence[Checked]) -> None:
    peaks = _peaks([piece for checked in found for piece in pieces(checked.value)])
    if math.isfinite(sum(peaks) * max((checked.max_weight for checked in found), default=0.0)):
        return  # no term is negative, so a finite sum means that every term is finite
    for where, value, max_weight in found:
        for path, leaf in leaves(value):
            peak = max(_peaks([leaf]), default=0.0)
            if not math.isfinite(peak):
                raise RefusedUpdate(f"{_place(where, path)}: holds NaN or infinite numbers")
            if not math.isfinite(peak * max_weight):  # an infinite sum would stay infinite
                raise RefusedUpdate(f"{_place(where, path)}: value times weight overflows float64")


def _part_of(client: str, name: str) -> str:
    return f"client {client!r}, part {name!r}"


def _place(where: str, path: str) -> str:
    return f"{where}, {path!r}" if path else where


def _peaks(tensors: list[Tensor]) -> list[float]:
    """Return the largest absolute value of every tensor with such values, NaN if it holds a NaN.

    Each tensor is read once, and the device is synchronised once for all of them.
    """
    tensors = [tensor for tensor in tensors if tensor.is_floating_point() and tensor.numel()]
    if not tensors:
        return []
    if tensors[0].is_cuda:  # one fused launch
        norms: list[float] = torch.stack(torch._foreach_norm(tensors, math.inf)).tolist()
        return norms
    # On a CPU aminmax is several times faster. Both ends are NaN if any value is.
    ends = torch.stack([end for leaf in tensors for end in torch.aminmax(leaf)]).tolist()
    return [max(abs(low), abs(high)) for low, high in zip(ends[::2], ends[1::2])]


def _by_path(tree: object, where: str, prefix: str = "") -> dict[str, Tensor]:
    """Return the leaves by path, with ``NOTHING`` for an empty branch.

    Raise RefusedUpdate if the tree holds anything but tensors, or a name that is not valid.
    """
    if isinstance(tree, Tensor):
        return {prefix: tree}
    if not isinstance(tree, Mapping):
        raise RefusedUpdate(f"{where}: expected tensors by name, found {type(tree).__name__}")
    if not tree:
        return {f"{prefix}/": NOTHING}
    bad = [name for name in tree if not isinstance(name, str) or not name or "/" in name]
    if bad:
        raise RefusedUpdate(f"{where}: a name must be non-empty text without '/', found {bad[:5]}")
    found: dict[str, Tensor] = {}
    for name, branch in tree.items():
        path = f"{prefix}/{name}" if prefix else name
        if isinstance(branch, Tensor):  # inline, because most branches are leaves
            found[path] = branch
        else:
            found |= _by_path(branch, where, path)
    return found


def _check_weight(part: Mean, like: Mean, where: str) -> float:
    """Return the largest weight, or raise RefusedUpdate if any is not valid."""
    try:
        weight, wanted = weight_of(part), weight_of(like)
    except (TypeError, ValueError, RuntimeError) as error:
        raise RefusedUpdate(f"{where}: a weight must be a number or a tensor") from error
    if weight.shape != wanted.shape:
        raise RefusedUpdate(
            f"{where}: expected a weight of shape {tuple(wanted.shape)}, "
            f"found {tuple(weight.shape)}"
        )
    return _check_weight_numbers(weight, where)


def _check_weight_numbers(weight: Tensor, where: str) -> float:
    """Return the largest number, or raise RefusedUpdate if any is not valid."""
    if not weight.numel():
        return 0.0
    # Both are NaN if any value is.
    ends = torch.stack(torch.aminmax(weight)).tolist() if weight.ndim else [weight.item()] * 2
    smallest, largest = (float(end) for end in ends)
    if not 0 <= smallest <= largest < math.inf:
        raise RefusedUpdate(f"{where}: a weight must be finite and not negative")
    if largest > MAX_WEIGHT:
        raise RefusedUpdate(f"{where}: a weight of {largest:g} is above the limit {MAX_WEIGHT:g}")
    return largest


def _check_not_zero(max_weight: float, where: str) -> None:
    if max_weight == 0:
        raise RefusedUpdate(f"{where}: its weight is 0, so the mean may be undefined")
