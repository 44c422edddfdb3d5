"""Nothing is added to the totals before every name, shape, dtype and number of it was checked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fedquilt.core.payload import Gather, Mean, Update, weight_of
from fedquilt.core.tree import Tree, leaves

TRAINED = ("body", "buffers", "training_loss")  # in these a client that has trained has weight
NOTHING = torch.empty(0)  # stands for an empty branch
HEAVIEST = 1e9  # weights are images, labels or steps; beyond that, one client would be the model


class RefusedUpdate(ValueError):
    """An update that was not taken; the totals are as if it had never come."""


class Numbers(NamedTuple):
    """A leaf, where it is, and the largest weight that it will be multiplied by."""

    part: str
    path: str
    leaf: Tensor
    heaviest: float


def check_update(update: Update, expected: Update, client: str) -> None:
    """Raise RefusedUpdate, naming client, part and reason, unless every number can be trusted."""
    if update.keys() != expected.keys():
        missing = sorted(expected.keys() - update.keys())
        extra = sorted(update.keys() - expected.keys())
        raise RefusedUpdate(
            f"client {client!r} sent the wrong parts: missing {missing}, unexpected {extra}"
        )
    numbers: list[Numbers] = []
    for name, part in update.items():
        like, where = expected[name], _part_of(client, name)
        if type(part) is not type(like):
            raise RefusedUpdate(
                f"{where}: expected a {type(like).__name__}, found a {type(part).__name__}"
            )
        heaviest = 1.0
        if isinstance(part, Mean) and isinstance(like, Mean):
            heaviest = _check_weight(part, like, where)
            if name in TRAINED:
                _check_counts(heaviest, where)
        may_be_longer = isinstance(like, Gather) and like.any_length
        value = _leaves_as_expected(part.value, like.value, where, first_axis=int(may_be_longer))
        numbers += [Numbers(where, path, leaf, heaviest) for path, leaf in value.items()]
    _check_numbers(numbers)
    for name, like in expected.items():
        if isinstance(like, Gather) and like.is_weight:
            where = _part_of(client, name)
            for _, weight in leaves(update[name].value):
                _check_counts(_check_weight_numbers(weight, where), where)


def _leaves_as_expected(
    value: Tree, like: Tree, where: str, *, first_axis: int
) -> dict[str, Tensor]:
    """The leaves by path; axes before ``first_axis`` may have any length."""
    found, wanted = _by_path(value, where), _by_path(like, where)
    if found.keys() != wanted.keys():
        odd = sorted(found.keys() ^ wanted.keys())
        raise RefusedUpdate(f"{where}: the names differ from what was expected: {odd[:5]}")
    for path, leaf in found.items():
        wish = wanted[path]
        shapes_agree = leaf.shape == wish.shape or (
            leaf.ndim == wish.ndim and leaf.shape[first_axis:] == wish.shape[first_axis:]
        )
        if not shapes_agree or leaf.dtype != wish.dtype:
            raise RefusedUpdate(
                f"{_place(where, path)}: expected {wish.dtype} of shape {tuple(wish.shape)}, "
                f"found {leaf.dtype} of shape {tuple(leaf.shape)}"
            )
    return found


def _check_numbers(numbers: Sequence[Numbers]) -> None:
    floating = [each for each in numbers if each.leaf.is_floating_point() and each.leaf.numel()]
    if not floating:
        return
    peaks = _peaks([each.leaf for each in floating])
    if math.isfinite(sum(peaks) * max(each.heaviest for each in floating)):
        return  # then each of them is: none is negative
    for (part, path, _, heaviest), peak in zip(floating, peaks):
        if not math.isfinite(peak):
            raise RefusedUpdate(f"{_place(part, path)}: holds NaN or infinite numbers")
        if not math.isfinite(peak * heaviest):  # the sums would never lose it again
            raise RefusedUpdate(f"{_place(part, path)}: value times weight is too large a number")


def _part_of(client: str, name: str) -> str:
    return f"client {client!r}, part {name!r}"


def _place(where: str, path: str) -> str:
    return f"{where}, {path!r}" if path else where


def _peaks(tensors: list[Tensor]) -> list[float]:
    """The largest absolute number of every tensor; NaN if there is any.

    One pass over each, and one wait for the device over all.
    """
    if tensors[0].is_cuda:  # all in one call
        norms: list[float] = torch.stack(torch._foreach_norm(tensors, math.inf)).tolist()
        return norms
    # On a CPU this is several times faster. Both ends are NaN if any number is.
    ends = torch.stack([end for leaf in tensors for end in torch.aminmax(leaf)]).tolist()
    return [max(abs(low), abs(high)) for low, high in zip(ends[::2], ends[1::2])]


def _by_path(tree: object, where: str, prefix: str = "") -> dict[str, Tensor]:
    """The leaves; an empty branch is a path with nothing; a tree of anything else is refused."""
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
        if isinstance(branch, Tensor):  # most are: a call for each would cost more
            found[path] = branch
        else:
            found |= _by_path(branch, where, path)
    return found


def _check_weight(part: Mean, like: Mean, where: str) -> float:
    """The largest weight, if all are fine."""
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
    """The largest, if all are fine."""
    if not weight.numel():
        return 0.0
    # Both are NaN if any number is.
    lightest, heaviest = (float(end) for end in torch.stack(torch.aminmax(weight)).tolist())
    if not 0 <= lightest <= heaviest < math.inf:
        raise RefusedUpdate(f"{where}: a weight must be finite and not negative")
    if heaviest > HEAVIEST:
        raise RefusedUpdate(
            f"{where}: a weight of {heaviest:g} is above {HEAVIEST:g}, more than any client has"
        )
    return heaviest


def _check_counts(heaviest: float, where: str) -> None:
    if heaviest == 0:
        raise RefusedUpdate(f"{where}: its weight is 0, so there might be no mean")
