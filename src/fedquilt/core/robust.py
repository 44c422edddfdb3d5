"""Robust rules: combine updates so that a few Byzantine clients cannot steer the result.

A rule looks at every update of a round, so a round keeps all of them. It is applied part by part:
over all clients, or class by class over those who annotate the class. Over all clients, the zero
rows of those who do not annotate a class would win the median.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.core.payload import Mean, Update, weight_of
from fedquilt.core.tree import Tree, clone, flatten, unflatten

RobustRule: TypeAlias = Literal["none", "median", "trimmed", "krum", "centered-clip"]
ENOUGH = 3  # voters of whom a lone liar can be told from the others
CLIPPINGS = 3  # steps of centered clipping

Stacks: TypeAlias = Callable[[], Iterator[tuple[str, Tensor]]]  # path, (voters, numbers) float64


@dataclass(frozen=True, kw_only=True)
class Robust:
    """How the server guards its model against sites that lie about their updates."""

    rule: RobustRule = "none"  # in place of the weighted mean
    liars: int = 1  # how many of the voters may lie; fewer, where there are few voters
    alarm: float | None = None  # stop if the AUC of a class falls by more, on held-out images

    def __post_init__(self) -> None:
        if self.liars < 1:
            raise UserError(f"robust.liars must be at least 1, found {self.liars}")
        if self.alarm is not None and not 0 < self.alarm < 1:
            raise UserError(
                f"robust.alarm must be a fall of the AUC between 0 and 1, found {self.alarm}"
            )


NOT_ROBUST = Robust()


@dataclass(frozen=True)
class RobustReport:
    """What the rule of a round did."""

    undefended: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # part -> its cells
    dropped: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # client -> part: cells

    def facts(self) -> dict[str, Any]:
        """Return the report for the history of a run."""
        cells = {part: list(numbers) for part, numbers in self.undefended.items()}
        dropped = {client: dict(parts) for client, parts in self.dropped.items()}
        facts = {"undefended": cells, "dropped": dropped}
        return {name: fact for name, fact in facts.items() if fact}


class RobustRound:
    """The rule of one round: keeps the means of every client, and combines them at the end.

    A cell is what one weight of a part belongs to: the whole part, or the row of a class. Cells
    with one or two voters are listed as undefended: of two, nobody can tell which one lies.

    Args:
        settings: the rule, and how many may lie.
        exempt: parts that stay weighted means.
        annotates: (C,) bool, the classes that a client annotates. In a part with a weight per
            class only these clients vote on a class, unless none of them has weight there.
    """

    def __init__(
        self,
        settings: Robust,
        exempt: frozenset[str] = frozenset(),
        annotates: Callable[[str], Tensor] | None = None,
    ) -> None:
        self._settings, self._exempt, self._annotates = settings, exempt, annotates
        self._kept: dict[str, dict[str, Mean]] = {}  # by part and client
        self._undefended: dict[str, list[int]] = {}
        self._dropped: dict[str, dict[str, int]] = {}

    def taken(self, update: Update) -> dict[str, Mean]:
        """The parts that the rule combines: sums and gathered parts have bounds only."""
        return {
            name: part
            for name, part in update.items()
            if isinstance(part, Mean) and name not in self._exempt
        }

    def keep(self, client: str, parts: Mapping[str, Mean]) -> None:
        for name, part in parts.items():  # copies: an engine may reuse its memory
            copy = replace(part, value=clone(part.value), weight=weight_of(part).clone())
            self._kept.setdefault(name, {})[client] = copy

    def sums(self) -> dict[str, dict[str, Tree]]:
        """Return sums whose quotient is the rule's result, whatever the order of arrival."""
        return {name: self._combined(name, parts) for name, parts in self._kept.items()}

    def report(self) -> RobustReport:
        undefended = {name: tuple(cells) for name, cells in self._undefended.items()}
        return RobustReport(undefended, self._dropped)

    def _combined(self, name: str, parts: Mapping[str, Mean]) -> dict[str, Tree]:
        clients = sorted(parts)
        flat = [flatten(parts[client].value) for client in clients]
        shape = weight_of(parts[clients[0]]).shape
        weights = torch.stack([weight_of(parts[client]).cpu() for client in clients])
        voting = self._voting(clients, weights).reshape(len(clients), -1)
        weights = weights.reshape(len(clients), -1)
        cells = weights.shape[1]
        total = {  # contiguous, so that its cells are views of it
            path: torch.zeros(leaf.shape, dtype=torch.float64, device=leaf.device)
            for path, leaf in flat[0].items()
        }
        counted = torch.zeros(cells, dtype=torch.float64)
        for cell in range(cells):
            voters = voting[:, cell].nonzero().flatten().tolist()
            if not voters:
                continue

            rows = [
                {path: leaf.reshape(cells, -1)[cell] for path, leaf in flat[voter].items()}
                for voter in voters
            ]
            mean, kept = self._estimate(stacks_of(rows), weights[voters, cell])
            counted[cell] = weights[[voters[place] for place in kept], cell].sum()
            for path, row in mean.items():
                total[path].reshape(cells, -1)[cell] = row * counted[cell]
            self._note(name, cell, [clients[voter] for voter in voters], kept)
        return {"total": unflatten(total), "weight": counted.reshape(shape)}

    def _voting(self, clients: Sequence[str], weights: Tensor) -> Tensor:
        """Which client votes on which cell, in the shape of ``weights``, (clients, cells...)."""
        has_weight = weights > 0
        if self._annotates is None or weights.ndim == 1:
            return has_weight
        annotates = torch.stack([self._annotates(client).cpu() for client in clients])
        if annotates.shape[1] != weights.shape[1]:
            return has_weight
        by_class = annotates.reshape(*annotates.shape, *[1] * (weights.ndim - 2))
        annotators = has_weight & by_class
        return torch.where(annotators.any(0, keepdim=True), annotators, has_weight)

    def _estimate(self, stacks: Stacks, weights: Tensor) -> tuple[dict[str, Tensor], list[int]]:
        """Return the estimate by path, and which of the voters count in it."""
        voters = len(weights)
        everyone = list(range(voters))
        if voters < ENOUGH:
            return _clipped_mean(stacks, weights), everyone
        liars = min(self._settings.liars, (voters - 1) // 2)
        if self._settings.rule == "krum":
            return _krum(stacks, weights, liars)
        if self._settings.rule == "centered-clip":
            return centered_clip(stacks, voters), everyone
        cut = liars if self._settings.rule == "trimmed" else (voters - 1) // 2
        return {path: trimmed_mean(stack, cut) for path, stack in stacks()}, everyone

    def _note(self, name: str, cell: int, voters: Sequence[str], kept: Sequence[int]) -> None:
        if len(voters) < ENOUGH:
            self._undefended.setdefault(name, []).append(cell)
        for place, client in enumerate(voters):
            if place not in kept:
                parts = self._dropped.setdefault(client, {})
                parts[name] = parts.get(name, 0) + 1


def stacks_of(rows: Sequence[Mapping[str, Tensor]]) -> Stacks:
    """The same numbers of all voters, one tensor at a time: a network of many needs memory."""

    def stacks() -> Iterator[tuple[str, Tensor]]:
        for path in rows[0]:
            yield path, torch.stack([row[path] for row in rows]).to(torch.float64)

    return stacks


def trimmed_mean(stack: Tensor, cut: int) -> Tensor:
    """The mean per column without its ``cut`` smallest and largest; the median if few are left."""
    ordered = stack.sort(0).values
    return ordered[cut : len(stack) - cut].mean(0)


def krum_scores(distances: Tensor, liars: int) -> Tensor:
    """The sum of each one's smallest squared distances to others, given (n, n) of them."""
    nearest = max(1, len(distances) - liars - 2)
    others = distances.sort(1).values[:, 1:]  # the first is the distance to oneself
    return others[:, :nearest].sum(1)


def centered_clip(stacks: Stacks, voters: int, steps: int = CLIPPINGS) -> dict[str, Tensor]:
    """From the median, step to the mean of the differences, each clipped to their median norm."""
    centre = {path: trimmed_mean(stack, (voters - 1) // 2) for path, stack in stacks()}
    radius = None
    for _ in range(steps):
        norms = _norms(stacks, centre)
        radius = trimmed_mean(norms, (voters - 1) // 2) if radius is None else radius
        scale = (radius / norms.clamp(min=torch.finfo(norms.dtype).tiny)).clamp(max=1.0)
        centre = {
            path: centre[path] + (scale.to(stack)[:, None] * (stack - centre[path])).mean(0)
            for path, stack in stacks()
        }
    return centre


def _krum(stacks: Stacks, weights: Tensor, liars: int) -> tuple[dict[str, Tensor], list[int]]:
    """The weighted mean without the ``liars`` farthest from their neighbours."""
    voters = len(weights)
    distances = torch.zeros(voters, voters, dtype=torch.float64)
    for _, stack in stacks():
        for one in range(voters):  # row by row: all pairs at once would take too much memory
            gaps = (stack[one + 1 :] - stack[one]).square().sum(1).cpu()
            distances[one, one + 1 :] += gaps
            distances[one + 1 :, one] += gaps
    scores = krum_scores(distances, liars)
    kept = sorted(scores.argsort(stable=True)[: voters - liars].tolist())
    return {path: _weighted_mean(stack[kept], weights[kept]) for path, stack in stacks()}, kept


def _clipped_mean(stacks: Stacks, weights: Tensor) -> dict[str, Tensor]:
    """The weighted mean of one or two, the larger clipped to the norm of the smaller."""
    norms = _norms(stacks, {})
    scale = torch.ones_like(norms)
    if bool((norms > 0).all()):
        scale = norms.min() / norms
    return {
        path: _weighted_mean(stack * scale.to(stack)[:, None], weights) for path, stack in stacks()
    }


def _norms(stacks: Stacks, centre: Mapping[str, Tensor]) -> Tensor:
    """The norm of each voter's difference from the centre, or from 0; on the host."""
    squares = [
        (stack - centre[path] if centre else stack).square().sum(1).cpu()
        for path, stack in stacks()
    ]
    return torch.stack(squares).sum(0).sqrt()


def _weighted_mean(stack: Tensor, weights: Tensor) -> Tensor:
    shares = (weights / weights.sum()).to(stack)
    return (stack * shares[:, None]).sum(0)
