"""Nothing is added to the totals before every name, shape, dtype and number of it was checked."""

from __future__ import annotations

import torch

from fedquilt.payload import Mean, Update, weight_of
from fedquilt.tree import Tree, leaves


class RefusedUpdate(ValueError):
    """An update that was not taken; the totals are as if it had never come."""


def check_update(update: Update, expected: Update, client: str) -> None:
    """Raise RefusedUpdate, naming client, part and reason, unless every number can be trusted."""
    if update.keys() != expected.keys():
        missing = sorted(expected.keys() - update.keys())
        extra = sorted(update.keys() - expected.keys())
        raise RefusedUpdate(
            f"client {client!r} sent the wrong parts: missing {missing}, unexpected {extra}"
        )
    for name, part in update.items():
        like = expected[name]
        where = f"client {client!r}, part {name!r}"
        if type(part) is not type(like):
            raise RefusedUpdate(
                f"{where}: expected a {type(like).__name__}, found a {type(part).__name__}"
            )
        _check_value(part.value, like.value, where)
        if isinstance(part, Mean) and isinstance(like, Mean):
            _check_weight(part, like, where)


def _check_value(value: Tree, like: Tree, where: str) -> None:
    found, wanted = dict(leaves(value)), dict(leaves(like))
    if found.keys() != wanted.keys():
        odd = sorted(found.keys() ^ wanted.keys())
        raise RefusedUpdate(f"{where}: the names differ from what was expected: {odd[:5]}")
    for path, leaf in found.items():
        place = f"{where}, {path!r}" if path else where
        if leaf.shape != wanted[path].shape or leaf.dtype != wanted[path].dtype:
            raise RefusedUpdate(
                f"{place}: expected {wanted[path].dtype} of shape {tuple(wanted[path].shape)}, "
                f"found {leaf.dtype} of shape {tuple(leaf.shape)}"
            )
        if not bool(torch.isfinite(leaf).all()):
            raise RefusedUpdate(f"{place}: holds NaN or infinite numbers")


def _check_weight(part: Mean, like: Mean, where: str) -> None:
    weight, wanted = weight_of(part), weight_of(like)
    if weight.shape != wanted.shape:
        raise RefusedUpdate(
            f"{where}: expected a weight of shape {tuple(wanted.shape)}, "
            f"found {tuple(weight.shape)}"
        )
    if not bool(torch.isfinite(weight).all()) or bool((weight < 0).any()):
        raise RefusedUpdate(f"{where}: a weight must be finite and not negative")
