"""run(): train a recipe, draw its pictures and write its report; exported as ``fedquilt.run``."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedquilt.data.source import Splits
from fedquilt.recipes.recipe import Recipe
from fedquilt.reports.html.run_report import try_run_report
from fedquilt.reports.run_pictures import save_run_pictures
from fedquilt.reports.tracking import Tracking, together
from fedquilt.runs import experiment
from fedquilt.runs.experiment import CACHE, Observer
from fedquilt.runs.finished_run import Run, read_run

log = logging.getLogger(__name__)


def run(
    recipe: Recipe,
    out: str | Path,
    *,
    cache: Path = CACHE,
    splits: Splits | None = None,
    observe: Observer = lambda event, facts: None,
    track: Sequence[str] = (),
    **options: Any,
) -> Run:
    """Run or resume a recipe in the folder ``out``; see ``experiment.run`` for the options.

    The images of ``splits`` are used instead of those of ``recipe.data``. ``track`` names
    trackers that get settings, metrics and pictures: tensorboard, mlflow, wandb.
    """
    with Tracking(track, recipe, out) as tracking:
        told = together(observe, tracking)
        experiment.run(recipe, out, cache=cache, splits=splits, observe=told, **options)
        used = recipe.data.load(cache) if splits is None else splits
        finished = with_report(read_run(out), used)
        tracking.add_pictures()
    return finished


def with_report(finished: Run, splits: Splits) -> Run:
    """Draw the pictures of a finished run and write its report."""
    save_run_pictures(finished, splits.train)
    complaint = try_run_report(finished.path)
    if complaint is not None:
        log.warning("%s", complaint)
    return finished
