"""Bounds: an update counts no more than was agreed, and is not far larger than the others.

Weights are bounded by what a client may weigh, norms by the median norm of the same part. By
default an update beyond a bound is refused, and one within it is added as it is. Clipping to the
median would change half of the honest updates of every round, so it has to be asked for.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from fedquilt.core.bounds_report import BoundsReport
from fedquilt.core.errors import UserError
from fedquilt.core.measured_norms import MeasuredNorms, lower_median
from fedquilt.core.norms import (
    ROUNDED,
    EarlierNorms,
    all_weights,
    as_lists,
    from_lists,
    median_norms,
    norms_by_weight,
    norms_of,
    rounded,
    rounded_number,
    scaled,
    whole_norm,
)
from fedquilt.core.payload import Gather, Mean, Part, Update, weight_of
from fedquilt.core.processes import Processes
from fedquilt.core.tree import tree_map, without
from fedquilt.core.update_checks import RefusedUpdate

FEW = 3  # norms from which a median says something about one of them
HELD = 8  # updates that a round keeps until it has a first median
SLACK = 1e-6  # weights may be counts in float32
UNCOMPARED = 1e9  # the largest norm of a part that no other client's can be compared with

WeightLimit: TypeAlias = Callable[[str, str], float]  # (client, part) -> the largest weight


class OutOfBounds(RefusedUpdate):
    """Raised for an update beyond a bound; the totals are left unchanged."""


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """What becomes of an update that weighs more than agreed, or is far larger than others."""

    beyond: Literal["refuse", "clip", "accept"] = "refuse"  # clip to the median; accept any norm
    norm_factor: float = 30.0  # refused beyond this many times the median norm of the part
    max_norms: Mapping[str, float] = field(default_factory=dict)  # agreed, instead of the median

    def __post_init__(self) -> None:
        if not 1 <= self.norm_factor < math.inf:
            raise UserError(f"bounds.norm_factor must be at least 1, found {self.norm_factor}")
        for part, norm in self.max_norms.items():
            if not 0 < norm < math.inf:
                raise UserError(f"bounds.max_norms.{part} must be positive, found {norm}")


DEFAULT_BOUNDS = Bounds()


class RoundBounds:
    """The bounds of one round: weighs, measures and judges updates.

    An update that is larger than the medians of the round before allow, or that has a part for
    which there is no median yet, waits until the round's own median is known. So the first round
    has bounds too, and a method may change all of its clients' norms from one round to the next.
    A liar alone cannot move the median. Once most clients have learnt all they can, medians are
    next to 0, and who still learns is taken by what was usual in earlier rounds.

    Args:
        settings: what is bounded, and how.
        before: the medians of earlier rounds.
        weight_limit: the largest weight of a client and part.
        steps: a client's steps in the round: one with more than the median may move further.
        squares: parts that hold squares; the root of their norm is compared.
        hold: the most updates that wait at a time.
    """

    def __init__(
        self,
        settings: Bounds,
        before: EarlierNorms,
        weight_limit: WeightLimit,
        *,
        steps: Callable[[str], int] = lambda client: 1,
        squares: frozenset[str] = frozenset(),
        hold: int = HELD,
    ) -> None:
        self.settings, self.hold = settings, hold
        self._before, self._weight_limit = before, weight_limit
        self._steps, self._squares = steps, squares
        self._measured = MeasuredNorms(steps)
        self._out: set[str] = set()  # clients whose update was refused for its norm
        self._clipped: dict[str, list[str]] = {}
        self.refused: dict[str, str] = {}

    def weighed(self, client: str, update: Update) -> Update:
        """Return the update with no weight above its limit, or raise OutOfBounds."""
        return {name: self._weighed(client, name, part) for name, part in update.items()}

    def _weighed(self, client: str, name: str, part: Part) -> Part:
        limit = self._weight_limit(client, name)
        weights = all_weights(part)
        if not weights.numel() or float(weights.max()) <= limit * (1 + SLACK):
            return part
        if self.settings.beyond != "clip":
            raise OutOfBounds(
                f"client {client!r}, part {name!r}: a weight of {float(weights.max()):g} is above "
                f"{limit:g}, the most that was agreed for this client"
            )
        self._note_clipped(client, name)
        if isinstance(part, Mean):
            return replace(part, weight=weight_of(part).clamp(max=limit))
        return replace(part, value=tree_map(lambda leaf: leaf.clamp(max=limit), part.value))

    def measure(self, client: str, update: Update) -> None:
        """Measure an update; raise OutOfBounds if a part is above its agreed norm."""
        if self.settings.beyond == "accept":
            return
        found = norms_of(update)
        for name, largest in self.settings.max_norms.items():
            norm = whole_norm(found[name]) if name in update else 0.0
            if not norm <= largest and self.settings.beyond == "refuse":
                raise OutOfBounds(
                    f"client {client!r}, part {name!r}: its norm of {norm:g} is above the agreed "
                    f"{largest:g}"
                )
        measured = {name: self._compared(name, norms) for name, norms in found.items()}
        for name, norms in measured.items():
            if not all(map(math.isfinite, norms.reshape(-1).tolist())):
                raise OutOfBounds(f"client {client!r}, part {name!r}: its norm overflows float64")
        self._measured.add(client, without(measured, *self.settings.max_norms))

    def must_wait(self, client: str) -> bool:
        """Whether the update can only be judged by the norms of this round."""
        if self._is_clipping:
            nothing = torch.zeros(())
            return any(
                bool(((norm > 0) & (self._before.last.get(name, nothing) == 0)).any())
                for name, norm in self._measured.by_client.get(client, {}).items()
            )
        return any(
            norm > 0 and not norm <= self._limit(client, name, self._last(name))
            for name, norm in self._measured.numbers.get(client, {}).items()
        )

    def judged(self, client: str, update: Update) -> Update:
        """Return the update, clipped if that is asked for; raise OutOfBounds if it is refused."""
        if self._is_clipping:
            return {name: self._clip(client, name, part) for name, part in update.items()}
        for name, norm in self._measured.numbers.get(client, {}).items():
            reference = self._reference(name)
            if reference == math.inf and norm > UNCOMPARED:
                self._out.add(client)
                raise OutOfBounds(
                    f"client {client!r}, part {name!r}: its norm of {norm:g} is above "
                    f"{UNCOMPARED:g}, the limit where no other client's can be compared"
                )
            if not norm <= self._limit(client, name, reference):
                self._out.add(client)
                reach = self.settings.norm_factor * self._longer(client)
                raise OutOfBounds(
                    f"client {client!r}, part {name!r}: its norm of {norm:g} is more than "
                    f"{reach:g} times {reference:g}, the median, and above what was usual earlier "
                    f"({self._sustained(name):g})"
                )
        return update

    def share_norms(self, processes: Processes) -> None:
        """Learn what the other processes measured: each judges by all norms of the round."""
        if processes.count == 1:
            return
        mine = {client: as_lists(norms) for client, norms in self._measured.by_client.items()}
        for theirs in processes.share(mine):
            for client in [each for each in theirs if each not in mine]:
                self._measured.add(client, from_lists(theirs[client]))

    def share_verdicts(self, processes: Processes) -> None:
        """Learn whose updates the other processes refused or clipped."""
        mine = [self.refused, sorted(self._out), self._clipped]
        for refused, out, clipped in processes.share(mine):
            self.refused |= refused
            self._out |= set(out)
            self._clipped |= clipped

    def report(self) -> BoundsReport:
        return BoundsReport(
            norms=self._before.followed_by(self._medians(), safe=self._safe_parts()),
            refused=dict(self.refused),
            clipped={client: tuple(parts) for client, parts in self._clipped.items()},
            largest=self._largest(),
        )

    @property
    def _is_clipping(self) -> bool:
        return self.settings.beyond == "clip"

    def _compared(self, name: str, norms: Tensor) -> Tensor:
        if self._is_clipping:
            return norms
        norm: Tensor = torch.linalg.vector_norm(norms)
        return norm.sqrt() if name in self._squares else norm

    def _limit(self, client: str, name: str, median: float) -> float:
        """The largest norm of a client's part beside this median."""
        usual = max(self.settings.norm_factor * median, self._sustained(name))
        return usual * self._longer(client)

    def _longer(self, client: str) -> float:
        """How many times the median client's steps this one takes, at least 1."""
        return max(1.0, self._steps(client) / max(self._measured.median_steps, 1))

    def _last(self, name: str) -> float:
        return float(self._before.last.get(name, 0.0))

    def _sustained(self, name: str) -> float:
        return float(self._before.sustained.get(name, 0.0))

    def _safe_parts(self) -> frozenset[str]:
        """The parts that enough clients sent for a median, where norms are of whole parts."""
        if self._is_clipping:
            return frozenset()
        sent = Counter(
            part
            for client, norms in self._measured.numbers.items()
            for part, norm in norms.items()
            if client not in self._out and norm > 0
        )
        return frozenset(part for part, count in sent.items() if count >= FEW)

    def _reference(self, name: str) -> float:
        """The norm that one part is compared with: the larger of both rounds' medians."""
        before, sent = self._last(name), self._measured.sent(name)
        if len(sent) >= FEW:
            return max(before, rounded_number(lower_median(sent)))
        # Of one or two, nobody can tell which is wrong; the round before may say it.
        return max(before, sent[0]) if before > 0 and sent else math.inf

    def _clip(self, client: str, name: str, part: Part) -> Part:
        norm = norms_by_weight(part)
        if name in self.settings.max_norms:
            whole = torch.linalg.vector_norm(norm)
            scale = (self.settings.max_norms[name] / whole).clamp(max=1.0)
        elif isinstance(part, Gather):
            return part
        else:
            nothing = torch.zeros_like(norm)  # a part that is 0 at all clients has no median
            before = self._before.last.get(name, nothing)
            limit = torch.where(before > 0, before, self._medians(every=True).get(name, nothing))
            is_above = norm > limit * (1 + ROUNDED)  # the median update itself is not
            scale = torch.where(is_above, limit / norm, 1.0)
        if not bool((scale < 1).any()):
            return part
        self._note_clipped(client, name)
        return replace(part, value=scaled(part.value, scale))

    def _medians(self, *, every: bool = False) -> dict[str, Tensor]:
        """The medians of this round by part, without updates that were refused."""
        found = self._measured.by_client
        counted = [norms for name, norms in found.items() if every or name not in self._out]
        medians: dict[str, Tensor] = {}
        for part in {name: None for norms in counted for name in norms}:
            sent = torch.stack([norms[part] for norms in counted if part in norms])
            few = not self._is_clipping and int((sent > 0).sum()) < FEW
            # Two honest clients may differ: with so few, the larger norm is the safe one.
            median = rounded(sent.amax(0)) if few else median_norms(sent)
            if bool((median > 0).any()):
                medians[part] = median
        return medians

    def _largest(self) -> str:
        medians = self._medians(every=True)
        found = [
            (whole_norm(norm) / whole_norm(medians[part]), client, part, whole_norm(norm))
            for client, norms in self._measured.by_client.items()
            for part, norm in norms.items()
            if part in medians
        ]
        if not found:
            return "no update was measured"
        ratio, client, part, norm = max(found)
        return f"part {part!r} of {client!r}, of norm {norm:g}, {ratio:.3g} times the median"

    def _note_clipped(self, client: str, name: str) -> None:
        parts = self._clipped.setdefault(client, [])
        if name not in parts:
            parts.append(name)
