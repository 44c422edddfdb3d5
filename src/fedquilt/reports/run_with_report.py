"""run(): train a recipe and draw its pictures; exported as ``fedquilt.run``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedquilt.recipes.recipe import Recipe
from fedquilt.reports.run_pictures import save_run_pictures
from fedquilt.runs import experiment
from fedquilt.runs.experiment import CACHE
from fedquilt.runs.finished_run import Run, read_run


def run(recipe: Recipe, out: Path, *, cache: Path = CACHE, **options: Any) -> Run:
    """Run or resume a recipe in the folder ``out``; see ``experiment.run`` for the options."""
    experiment.run(recipe, out, cache=cache, **options)
    finished = read_run(out)
    save_run_pictures(finished, recipe.data.load(cache).train)
    return finished
