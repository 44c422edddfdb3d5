"""tune(): run the trials of all methods in parallel, scored on validation images only."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fedquilt.core.errors import UserError
from fedquilt.recipes.recipe import Recipe
from fedquilt.runs.parallel import RunPool
from fedquilt.runs.run_folder import RunFolder
from fedquilt.runs.served_models import choices_of
from fedquilt.runs.simulation import simulate
from fedquilt.runs.sweep.plan import Span, SweepPlan
from fedquilt.runs.sweep.search import Outcome, Search, Trial

NO_VALIDATION = (
    "a sweep is scored on validation images only, and these data have none; set aside some with "
    "[validation] share = 0.2, or mark images as val in the split column"
)


@dataclass
class _Running:
    """A trial whose runs, one per tuning seed, are waiting or under way."""

    trial: Trial
    recipes: dict[Path, Recipe]
    scores: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        return len(self.scores) + len(self.errors) == len(self.recipes)

    def outcome(self) -> Outcome:
        if self.errors:
            return Outcome(self.trial, None, self.errors[0])
        return Outcome(self.trial, statistics.fmean(self.scores))


def tune(
    plan: SweepPlan,
    searches: Mapping[str, Search],
    out: Path,
    pool: RunPool,
    report: Callable[[Outcome], None],
) -> None:
    """Run trials until every search's budget is used up; finished runs in ``out`` are kept."""
    open_runs: dict[Path, _Running] = {}
    waiting: list[Path] = []

    def settle(folder: Path, error: BaseException | None) -> None:
        running = open_runs.pop(folder)
        try:
            if error is not None:
                raise error
            running.scores.append(score_of_run(RunFolder(folder), running.recipes[folder]))
        except Exception as problem:
            running.errors.append(str(problem) or type(problem).__name__)
        if running.is_over:
            outcome = running.outcome()
            searches[running.trial.method].tell(outcome)
            report(outcome)

    while True:
        while pool.has_room:
            if not waiting:
                begun = _next(plan, searches, out)
                if begun is None:
                    break
                open_runs |= dict.fromkeys(begun.recipes, begun)
                waiting += begun.recipes
            folder = waiting.pop(0)
            recipe = open_runs[folder].recipes[folder]
            if is_finished(RunFolder(folder), recipe):
                settle(folder, None)
            else:
                pool.submit(recipe, folder)
        if pool.is_idle and not waiting:
            return
        for folder, error in pool.finished():
            settle(folder, error)
        for search in searches.values():
            search.keep_alive()


def _next(plan: SweepPlan, searches: Mapping[str, Search], out: Path) -> _Running | None:
    for search in searches.values():
        trial = search.ask()
        if trial is not None:
            recipes = {
                f"seed-{seed}": plan.recipe(trial.method, trial.settings, seed)
                for seed in plan.sweep.tuning_seeds
            }
            return _Running(trial, with_folders(out / trial.folder, recipes))
    return None


def with_folders(out: Path, recipes: Mapping[str, Recipe]) -> dict[Path, Recipe]:
    """Give every recipe the folder of its name, or where another study's run lies, the next."""
    return {_free_folder(out / name, recipe): recipe for name, recipe in recipes.items()}


def _free_folder(folder: Path, recipe: Recipe) -> Path:
    later = (folder.with_name(f"{folder.name}-{number}") for number in itertools.count(2))
    return next(each for each in itertools.chain([folder], later) if RunFolder(each).takes(recipe))


def is_finished(folder: RunFolder, recipe: Recipe) -> bool:
    """Whether the folder holds the result of just this recipe."""
    return folder.result.exists() and folder.read_json(folder.recipe) == recipe.to_dict()


def score_of_run(folder: RunFolder, recipe: Recipe) -> float:
    """Return the best validated round's score, larger is better; the mean over clients' models.

    No test image enters it.
    """
    choices = choices_of(folder.history.read(), recipe)
    scores = [each.score for each in choices.values() if each.best is not None]
    if not scores or not all(map(math.isfinite, scores)):
        raise UserError("no round could be judged on validation images")
    return statistics.fmean(scores)


def best_of(method: str, search: Search) -> Outcome:
    """Return the trial with the largest score; the first of equals."""
    outcomes = search.outcomes()
    scores = {number: each.score for number, each in enumerate(outcomes) if each.score is not None}
    if not scores:
        reason = next((each.error for each in outcomes if each.error), "none was finished")
        raise UserError(f"{method}: no trial has a score; the first failed with: {reason}")
    return outcomes[max(scores, key=scores.__getitem__)]


def check_has_validation(plan: SweepPlan, cache: Path) -> None:
    """Load the data once; raise UserError unless some are set aside for validation."""
    method = plan.methods[0]
    first = {
        place: choice.low if isinstance(choice, Span) else choice[0]
        for place, choice in plan.choices(method).items()
    }
    recipe = plan.recipe(method, first, plan.sweep.tuning_seeds[0])
    if not simulate(recipe, cache).validation:
        raise UserError(NO_VALIDATION)
