"""The server's view of a round: updates are added as they arrive, and only Totals come out."""

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
    """Adds the updates of a round as they arrive; its memory does not grow with their number.

    ``expected`` is one update of the right names, kinds, shapes and dtypes; its numbers are not
    read. Sums run in float64, so that the order of arrival hardly ever reaches the last bit.
    ``further_check`` gets client and update once all of that is right, and may refuse it too.
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
        self._cohort: list[str] = []
        self._sums: dict[str, dict[str, Tree]] = {}
        self._gathered: dict[str, dict[str, Tree]] = {}
        self._byte_count = 0

    def add(self, client: str, update: Update) -> None:
        """Take one client's update whole, or raise RefusedUpdate and take nothing."""
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
        self._cohort.append(client)
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
    """All that a server ever learns of a round. Sums may lie on a GPU; what is read does not."""

    cohort: tuple[str, ...]
    population: int
    expected: Update
    sums: Mapping[str, Mapping[str, Tree]]
    gathered: Mapping[str, Mapping[str, Tree]]
    byte_count: int  # of all that the cohort sent

    def sum(self, name: str) -> Any:
        return self._in_dtype(name, self._sums_of(name, Sum)["total"])

    def weight(self, name: str) -> Tensor:
        """The summed weight of a mean, in float64."""
        return self._weight(name).cpu()

    def mean(self, name: str, otherwise: Tree | None = None) -> Any:
        """The weighted mean; ``otherwise`` stands in where nobody had weight.

        Without ``otherwise`` such a place is an error: never a silent 0 or NaN.
        """
        total, weight = self._sums_of(name, Mean)["total"], self._weight(name)
        if otherwise is None:
            if not bool((weight > 0).all()):
                raise ValueError(
                    f"nobody in the cohort {self.cohort} had weight for (all of) part {name!r}; "
                    "pass otherwise= to say what the mean is then"
                )
            mean = tree_map(lambda leaf: leaf / over_leading_axes(weight, leaf), total)
        else:
            mean = tree_map(
                lambda leaf, stand_in: torch.where(
                    over_leading_axes(weight, leaf) > 0,
                    leaf / over_leading_axes(torch.where(weight > 0, weight, 1.0), leaf),
                    stand_in.to(leaf),
                ),
                total,
                otherwise,
            )
        return self._in_dtype(name, mean)

    def each(self, name: str) -> Mapping[str, Any]:
        """Every client's own value of a Gather part, by client name."""
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
            raise ValueError(f"part {name!r} was read from a round in which nobody reported")

    def _weight(self, name: str) -> Tensor:
        """Where the part's sum is."""
        sums = self._sums_of(name, Mean)
        weight = sums["weight"]
        assert isinstance(weight, Tensor)
        return next((weight.to(leaf.device) for _, leaf in leaves(sums["total"])), weight)

    def _in_dtype(self, name: str, tree: Tree) -> Any:
        """As expected, and on the server's device: only then, for a sum has twice the bytes."""
        like = self.expected[name].value
        return on_host(tree_map(lambda leaf, like: leaf.to(like.dtype), tree, like))
