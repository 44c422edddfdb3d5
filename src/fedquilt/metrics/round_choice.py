"""RoundChoice: the round whose model is served, and when to stop; chosen on validation only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from fedquilt.data.validation import ChosenBy, Validation


@dataclass(frozen=True)
class RoundChoice:
    """The choice after some validated rounds. A tie goes to the earlier round.

    Rounds are compared only if the same sites validated them. If others do so more often, the
    choice starts again with them: a site that is lost for good must not fix an early round.
    """

    best: int | None = None  # the round, counted from 1
    score: float = -inf  # of the best round; larger is better
    without_gain: int = 0  # compared validations since the last gain of at least min_gain
    gained_at: float = -inf  # the score at that gain
    sites: tuple[str, ...] = ()
    lead: int = 0  # rounds validated by these sites, less those by others

    def after(
        self,
        round_number: int,
        score: float | None,
        settings: Validation,
        *,
        warmup: int = 0,
        sites: tuple[str, ...] = (),
    ) -> RoundChoice:
        """Return the choice after one more validated round; a score of None changes nothing.

        Args:
            round_number: counted from 1.
            score: see :func:`score_of`.
            settings: of the recipe.
            warmup: rounds in which patience does not count.
            sites: those that validated, if some may have been missing.
        """
        if score is None:
            return self
        if sites != self.sites and self.lead > 0:
            return replace(self, lead=self.lead - 1)
        if self.lead == 0:
            return RoundChoice(round_number, score, 0, score, sites, 1)
        is_better = score > self.score
        has_gained = score > self.gained_at and score >= self.gained_at + settings.min_gain
        counts = round_number > warmup and not has_gained
        return RoundChoice(
            best=round_number if is_better else self.best,
            score=score if is_better else self.score,
            without_gain=self.without_gain + 1 if counts else 0,
            gained_at=score if has_gained else self.gained_at,
            sites=sites,
            lead=self.lead + 1,
        )

    def is_over(self, settings: Validation) -> bool:
        """Whether training stops: the recipe's patience has run out."""
        return settings.patience is not None and self.without_gain >= settings.patience


def score_of(found: Mapping[str, Any], metric: ChosenBy) -> float | None:
    """Return a validated round's score, of which larger is better; None if it is undefined."""
    value: float | None = found[metric]
    return -value if metric == "loss" and value is not None else value
