"""The first rounds: a warm-up on annotated labels only, and the ramp of a loss weight."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fedquilt.training.activity import RunSize
from fedquilt.training.advice import short_warmup, warmup_never_ended
from fedquilt.training.averaging import WeightedAveraging
from fedquilt.training.method import Stage

WARM_UP = "warm-up"  # the name of the stage of these rounds


def gaussian_ramp(round_index: int, start: int, end: int) -> float:
    """Rise from exp(-5) up to round ``start`` to 1 from round ``end`` on; 1 if they are equal."""
    if end == start:
        return 1.0
    missing = 1.0 - (min(max(round_index, start), end) - start) / (end - start)
    return math.exp(-5.0 * missing**2)


@dataclass(frozen=True, kw_only=True)
class WarmUpAveraging(WeightedAveraging):
    """The base of methods that begin their own work after a warm-up."""

    warmup_rounds: int = 50  # rounds on annotated labels only

    later_stage: ClassVar[str] = "train"  # the name of the stage after the warm-up

    @property
    def summaries_from(self) -> int:
        """The first round after which clients send what the rounds after the warm-up use."""
        return max(0, self.warmup_rounds - 1)

    def stages(self, round_index: int) -> tuple[Stage, ...]:
        return (Stage(name=WARM_UP if round_index < self.warmup_rounds else self.later_stage),)

    def only_warmed_up(self, size: RunSize) -> str:
        """The reason why nothing was done after the warm-up, if it filled the run."""
        endless = self.warmup_rounds >= size.rounds
        return warmup_never_ended(self.warmup_rounds, size) if endless else ""

    def why_idle(self, what: str, size: RunSize) -> str:
        return super().why_idle(what, size) or self.only_warmed_up(size)

    def suited_to(self, size: RunSize) -> Mapping[str, Any]:
        return {"warmup_rounds": short_warmup(self.warmup_rounds, size)}
