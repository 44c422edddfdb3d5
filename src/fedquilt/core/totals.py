"""Streaming aggregation of a round: updates are added as they arrive, the server sees Totals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fedquilt.core.bounds import OutOfBounds, RoundBounds
from fedquilt.core.bounds_report import BoundsReport
from fedquilt.core.fixed_point import (
    Scales,
    add_integers,
    as_floats,
    no_integers,
    quantised,
    resting,
)
from fedquilt.core.payload import (
    Gather,
    Mean,
    Part,
    Sum,
    Update,
    add_to,
    over_leading_axes,
    summands,
    update_bytes,
    weight_of,
)
from fedquilt.core.processes import ONE_PROCESS, Processes
from fedquilt.core.robust import RobustReport, RobustRound
from fedquilt.core.tree import (
    Tree,
    as_branch,
    clone,
    from_branch,
    leaves,
    on_host,
    tree_map,
    zeros_like,
)
from fedquilt.core.update_checks import RefusedUpdate, check_update


class Accumulator:
    """Adds the updates of a round; sums take the same memory for any number of clients.

    ``expected`` is an update with the right names, kinds, shapes and dtypes; its values are not
    read. Sums are float64, so the order of arrival almost never changes the result; with
    ``scales`` they are integers, and it never does. ``further_check`` is called with client and
    update after these checks and may raise RefusedUpdate. With ``bounds``, some updates are copied
    and wait to be judged until the round ends, at most ``bounds.hold`` at a time. With ``rule``,
    all are kept, and it combines the means that it takes. ``processes`` count other clients.
    """

    def __init__(
        self,
        expected: Update,
        population: int,
        further_check: Callable[[str, Update], None] = lambda client, update: None,
        bounds: RoundBounds | None = None,
        scales: Scales | None = None,
        rule: RobustRound | None = None,
        processes: Processes = ONE_PROCESS,
    ) -> None:
        self._processes = processes
        self._expected = expected
        self._scales = scales
        self._rule = rule
        self._further_check = further_check
        self._bounds = bounds
        self._waiting: dict[str, Update] = {}
        self._population = population
        self._cohort: dict[str, None] = {}  # in order of arrival
        self._sums: dict[str, dict[str, Tree]] = {}
        self._gathered: dict[str, dict[str, Tree]] = {}
        self._byte_count = 0
        self.is_torn = False  # an update was counted in part only: the totals must not be used

    def add(self, client: str, update: Update) -> None:
        """Add one client's update, or raise RefusedUpdate and add nothing."""
        if client in self._cohort or client in self._waiting:
            raise RefusedUpdate(f"client {client!r} was already counted in this round")
        check_update(update, self._expected, client)
        self._further_check(client, update)
        if self._bounds is None:
            self._count(client, update)
            return
        try:
            update = self._bounds.weighed(client, update)
            self._bounds.measure(client, update)
            # Later updates wait behind one that does: the order of the sums stays that of arrival.
            if not self._waiting and not self._bounds.must_wait(client):
                self._count(client, self._bounds.judged(client, update))
                return
        except OutOfBounds as error:
            self._bounds.refused[client] = str(error)
            raise
        self._waiting[client] = {name: _copied(part) for name, part in update.items()}
        if len(self._waiting) >= self._bounds.hold:
            self._judge_waiting(self._bounds)

    def settle(self) -> Mapping[str, str]:
        """Judge the waiting updates; return why clients were refused for a bound so far."""
        if self._bounds is None:
            return {}
        self._bounds.share_norms(self._processes)
        self._judge_waiting(self._bounds)
        self._bounds.share_verdicts(self._processes)
        return self._bounds.refused

    def _judge_waiting(self, bounds: RoundBounds) -> None:
        for client, update in self._waiting.items():
            try:
                self._count(client, bounds.judged(client, update))
            except OutOfBounds as error:
                bounds.refused[client] = str(error)
        self._waiting = {}

    def _count(self, client: str, update: Update) -> None:
        taken = {} if self._rule is None else self._rule.taken(update)
        summed = {name: part for name, part in update.items() if name not in taken}
        if self._scales is None:
            self.is_torn = True
            self._add_floats(client, summed)
        else:
            # All parts first: a value out of range must leave the sums as they are.
            parts = {
                name: quantised(client, name, part, self._scales[name])
                for name, part in update.items()
            }
            add_integers(self._sums, {name: parts[name] for name in self._sums})
            self._sums |= {name: parts[name] for name in summed if name not in self._sums}
        if self._rule is not None:
            self._rule.keep(client, taken)
        self._cohort[client] = None
        self._byte_count += update_bytes(update)
        self.is_torn = False

    def _add_floats(self, client: str, parts: Update) -> None:
        for name, part in parts.items():
            if isinstance(part, Gather):
                self._gathered.setdefault(name, {})[client] = part.value
            elif name in self._sums:
                add_to(self._sums[name], part)
            else:
                self._sums[name] = summands(part)

    def _join(self) -> None:
        """Add what the other processes counted."""
        counted = self._processes.share([list(self._cohort), self._byte_count])
        self._cohort = dict.fromkeys(sorted(name for names, _ in counted for name in names))
        self._byte_count = sum(count for _, count in counted)
        if not self._cohort:
            return
        self._sums = self._processes.add_up(self._sums or self._no_sums())
        gathered = {
            name: {as_branch(client): tree for client, tree in values.items()}
            for name, values in self._gathered.items()
        }
        for theirs in self._processes.share_trees(gathered):
            for name, values in theirs.items():
                by_client = self._gathered.setdefault(name, {})
                by_client |= {from_branch(branch): tree for branch, tree in values.items()}

    def _no_sums(self) -> dict[str, dict[str, Tree]]:
        """Zero sums, of a process without a client in the cohort."""
        summed = {n: part for n, part in self._expected.items() if not isinstance(part, Gather)}
        if self._scales is not None:
            return no_integers(summed)
        return {name: zeros_like(summands(part)) for name, part in summed.items()}

    def totals(self) -> Totals:
        """Return the totals, with those of the other processes."""
        self.settle()
        if self._processes.count > 1:
            self._join()
        sums = self._sums
        if self._scales is not None:
            sums = {name: as_floats(each, self._scales[name]) for name, each in sums.items()}
        if self._rule is not None:
            sums = {**sums, **self._rule.sums()}
        return Totals(
            cohort=tuple(self._cohort),
            population=self._population,
            expected=self._expected,
            sums=sums,
            gathered=self._gathered,
            byte_count=self._byte_count,
            may_rest=self._scales is not None,
            bounds=BoundsReport() if self._bounds is None else self._bounds.report(),
            robust=RobustReport() if self._rule is None else self._rule.report(),
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
    bounds: BoundsReport = BoundsReport()
    robust: RobustReport = RobustReport()
    may_rest: bool = False  # a mean without any weight is 0, instead of an error

    @classmethod
    def of_integers(
        cls,
        cohort: tuple[str, ...],
        population: int,
        expected: Update,
        sums: Mapping[str, Mapping[str, Tree]],
        scales: Scales,
        byte_count: int,
    ) -> Totals:
        """Return the totals of a round whose updates were added elsewhere, as integers."""
        floats = {name: as_floats(each, scales[name]) for name, each in sums.items()}
        return cls(cohort, population, expected, floats, {}, byte_count, may_rest=True)

    def sum(self, name: str) -> Any:
        return self._in_dtype(name, self._sums_of(name, Sum)["total"])

    def weight(self, name: str) -> Tensor:
        """Return the summed weight of a mean, in float64."""
        return self._weight(name).cpu()

    def mean(self, name: str, otherwise: Tree | None = None) -> Any:
        """Return the weighted mean, with ``otherwise`` where the summed weight is 0.

        Raise ValueError if the summed weight is 0 anywhere and ``otherwise`` is not given, unless
        sums are integers: there the negligible weight of a client that has none is 0.
        """
        total, weight = self._sums_of(name, Mean)["total"], self._weight(name)
        if otherwise is None and self.may_rest:
            otherwise = resting(total)
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


def _copied(part: Part) -> Part:
    """Copy a part that has to wait: an engine may reuse its memory."""
    if isinstance(part, Mean):
        return replace(part, value=clone(part.value), weight=weight_of(part).clone())
    return replace(part, value=clone(part.value))
