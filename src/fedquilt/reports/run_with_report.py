"""run(): train a recipe, draw its pictures and write its report; exported as ``fedquilt.run``."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from fedquilt.data.source import Splits
from fedquilt.recipes.recipe import Recipe
from fedquilt.reports.html.run_report import try_run_report
from fedquilt.reports.run_pictures import save_run_pictures
from fedquilt.runs import experiment
from fedquilt.runs.experiment import CACHE
from fedquilt.runs.finished_run import Run, read_run

log = logging.getLogger(__name__)


def run(
    recipe: Recipe,
    out: str | Path,
    *,
    cache: Path = CACHE,
    splits: Splits | None = None,
    **options: Any,
) -> Run:
    """Run or resume a recipe in the folder ``out``; see ``experiment.run`` for the options.

    The images of ``splits`` are used instead of those of ``recipe.data``.
    """
    experiment.run(recipe, out, cache=cache, splits=splits, **options)
    return with_report(read_run(out), recipe.data.load(cache) if splits is None else splits)


def with_report(finished: Run, splits: Splits) -> Run:
    """Draw the pictures of a finished run and write its report."""
    save_run_pictures(finished, splits.train)
    complaint = try_run_report(finished.path)
    if complaint is not None:
        log.warning("%s", complaint)
    return finished
