"""Search: gives the combinations of settings to try and takes their scores; the grid search."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from fedquilt.core.errors import UserError
from fedquilt.core.seeding import seed_for
from fedquilt.core.wording import counted
from fedquilt.runs.sweep.plan import Choice, Settings, Span, SweepPlan


@dataclass(frozen=True)
class Trial:
    """One combination of settings of one method; its runs are in a folder of its own."""

    method: str
    number: int
    settings: Settings

    @property
    def folder(self) -> str:
        return f"{self.method}/{self.number:04d}"


@dataclass(frozen=True)
class Outcome:
    """A trial with its score on validation images, of which larger is better; None: it failed."""

    trial: Trial
    score: float | None
    error: str | None = None


class Search(Protocol):
    """The trials of one method."""

    def ask(self) -> Trial | None:
        """Return the next trial to run here; None if the budget is used up."""

    def tell(self, outcome: Outcome) -> None: ...

    def outcomes(self) -> list[Outcome]:
        """Return all that is known, wherever it was run, by number."""

    def keep_alive(self) -> None:
        """Called while trials run, many times a second."""

    def running_elsewhere(self) -> int: ...


class GridSearch:
    """All combinations, or as many as the budget allows, drawn without replacement."""

    def __init__(self, method: str, points: Sequence[Settings]) -> None:
        self._waiting = [Trial(method, number, point) for number, point in enumerate(points)]
        self._outcomes: list[Outcome] = []

    def ask(self) -> Trial | None:
        return self._waiting.pop(0) if self._waiting else None

    def tell(self, outcome: Outcome) -> None:
        self._outcomes.append(outcome)

    def outcomes(self) -> list[Outcome]:
        return sorted(self._outcomes, key=lambda each: each.trial.number)

    def keep_alive(self) -> None:
        """Nobody else looks."""

    def running_elsewhere(self) -> int:
        return 0


def grid_points(choices: Mapping[str, Choice]) -> list[Settings]:
    """Return all combinations, the last setting changing fastest."""
    spans = [place for place, choice in choices.items() if isinstance(choice, Span)]
    if spans:
        raise UserError(
            f"sweep: {spans[0]!r} is a range, which a grid cannot try; list its values, or set "
            "sweep.search = 'optuna'"
        )
    values = [choice for choice in choices.values() if not isinstance(choice, Span)]
    return [dict(zip(choices, point)) for point in itertools.product(*values)]


def grid_searches(plan: SweepPlan) -> tuple[dict[str, Search], list[str]]:
    """Return a search per method with equal budgets, and remarks on what is left out."""
    grids = {method: grid_points(plan.choices(method)) for method in plan.methods}
    budget = plan.sweep.trials or min(map(len, grids.values()))
    searches: dict[str, Search] = {}
    remarks = []
    for method, points in grids.items():
        chosen = points
        if len(points) > budget:
            draw = random.Random(seed_for("grid", plan.sweep.search_seed, method))
            chosen = [points[row] for row in sorted(draw.sample(range(len(points)), budget))]
            remarks.append(
                f"{method}: {budget} of {len(points)} combinations are tried, drawn at random"
            )
        elif len(points) < budget:
            remarks.append(
                f"{method}: its grid has {counted(len(points), 'combination')}, not {budget}"
            )
        searches[method] = GridSearch(method, chosen)
    return searches, remarks
