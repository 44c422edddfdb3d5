"""Streaming aggregation of a round: updates are added as they arrive, the server sees Totals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedquilt.core.payload import (
    Gather,
    Mean,
    Sum,
    Update,
    add_to,
    over_leading_axes,
    summands,
    update_bytes,
)
from fedquilt.core.tree import Tree, leaves, on_host, tree_map
from fedquilt.core.validation import RefusedUpdate, check_update


class Accumulator:
    """Adds the updates of a round; sums take the same memory for any number of clients.

    ``expected`` is an update with the right names, kinds, shapes and dtypes; its values are not
    read. Sums are float64, so the order of arrival almost never changes the result.
    ``further_check`` is called with client and update after these checks and may raise
    RefusedUpdate.
    """

    def __init__(
        self,
        expected: Update,
        population: int,
        further_check: Callable[[str, Update], None] = lambda client, update: None,
    ) -> None:
        self._expected = expected
        self._further_check = further_check
        self._population = population
        self._cohort: dict[str, None] = {}  # in order of arrival
        self._sums: dict[str, dict[str, Tree]] = {}
        self._gathered: dict[str, dict[str, Tree]] = {}
        self._byte_count = 0

    def add(self, client: str, update: Update) -> None:
        """Add one client's update, or raise RefusedUpdate and add nothing."""
        if client in self._cohort:
            raise RefusedUpdate(f"client {client!r} was already counted in this round")
        check_update(update, self._expected, client)
        self._further_check(client, update)
        for name, part in update.items():
            if isinstance(part, Gather):
                self._gathered.setdefault(name, {})[client] = part.value
            elif name in self._sums:
                add_to(self._sums[name], part)
            else:
                self._sums[name] = summands(part)
        self._cohort[client] = None
        self._byte_count += update_bytes(update)

    def totals(self) -> Totals:
        return Totals(
            cohort=tuple(self._cohort),
            population=self._population,
            expected=self._expected,
            sums=self._sums,
            gathered=self._gathered,
            byte_count=self._byte_count,
        )


@dataclass(frozen=True)
class Totals:
    """Everything the server learns in a round.

    Sums may be on a GPU; the methods return tensors on the host.
    """

    cohort: tuple[str, ...]
    population: int
    expected: Update
    sums: Mapping[str, Mapping[str, Tree]]
    gathered: Mapping[str, Mapping[str, Tree]]
    byte_count: int  # sent by the whole cohort

    def sum(self, name: str) -> Any:
        return self._in_dtype(name, self._sums_of(name, Sum)["total"])

    def weight(self, name: str) -> Tensor:
        """Return the summed weight of a mean, in float64."""
        return self._weight(name).cpu()

    def mean(self, name: str, otherwise: Tree | None = None) -> Any:
        """Return the weighted mean, with ``otherwise`` where the summed weight is 0.

        Raise ValueError if the summed weight is 0 anywhere and ``otherwise`` is not given.
        """
        total, weight = self._sums_of(name, Mean)["total"], self._weight(name)
        if otherwise is None:
            if not bool((weight > 0).all()):
                raise ValueError(
                    f"no client of the cohort {self.cohort} had weight for (all of) part {name!r}; "
                    "pass otherwise= as the value to use instead"
                )
            mean = tree_map(lambda leaf: leaf / over_leading_axes(weight, leaf), total)
        else:
            mean = tree_map(
                lambda leaf, fallback: torch.where(
                    over_leading_axes(weight, leaf) > 0,
                    leaf / over_leading_axes(torch.where(weight > 0, weight, 1.0), leaf),
                    fallback.to(leaf),
                ),
                total,
                otherwise,
            )
        return self._in_dtype(name, mean)

    def each(self, name: str) -> Mapping[str, Any]:
        """Return the values of a Gather part by client."""
        self._require(name, Gather)
        return self.gathered[name]

    def _sums_of(self, name: str, kind: type) -> Mapping[str, Tree]:
        self._require(name, kind)
        return self.sums[name]

    def _require(self, name: str, kind: type) -> None:
        found = self.expected.get(name)
        if not isinstance(found, kind):
            what = "not sent" if found is None else f"a {type(found).__name__}"
            raise KeyError(f"part {name!r} is {what}, and was read as a {kind.__name__}")
        if not self.cohort:
            raise ValueError(f"part {name!r} was read from a round in which no client reported")

    def _weight(self, name: str) -> Tensor:
        """Return the summed weight, on the device of the part's sum."""
        sums = self._sums_of(name, Mean)
        weight = sums["weight"]
        assert isinstance(weight, Tensor)
        return next((weight.to(leaf.device) for _, leaf in leaves(sums["total"])), weight)

    def _in_dtype(self, name: str, tree: Tree) -> Any:
        """Convert to the expected dtype first, which has half the bytes, then move to the host."""
        like = self.expected[name].value
        return on_host(tree_map(lambda leaf, like: leaf.to(like.dtype), tree, like))
