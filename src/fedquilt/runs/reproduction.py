"""A published table's cells as runs in folders, several at a time; finished ones are kept."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedquilt.recipes.papers.table import Cell, PublishedTable
from fedquilt.recipes.recipe import Recipe
from fedquilt.runs.parallel import run_all
from fedquilt.runs.run_folder import RunFolder


@dataclass(frozen=True, eq=False)
class CellRun:
    """One cell with one seed."""

    cell: Cell
    seed: int
    recipe: Recipe
    folder: RunFolder

    @property
    def result(self) -> dict[str, Any]:
        result: dict[str, Any] = self.folder.read_json(self.folder.result)
        return result

    @property
    def is_finished(self) -> bool:
        """With this very recipe; of all that a run leaves, only its result is needed for it."""
        return self.folder.result.exists() and self.result["recipe_hash"] == self.recipe.hash


def plan_runs(
    table: PublishedTable,
    cells: Iterable[Cell],
    seeds: Sequence[int],
    out: Path,
    *,
    folder: Path | None = None,
    changes: Sequence[str] = (),
) -> list[CellRun]:
    """A run folder in ``out`` for each cell and seed; recipes are all read before any run.

    Where columns differ in nothing that a bound sees, the first column's run stands in all of them.
    """
    runs = []
    for cell in cells:
        for seed in seeds:
            columns = {
                column.name: table.recipe(Cell(cell.row, column), seed, folder, changes)
                for column in table.choice.columns
            }
            seen = _as_the_method_sees(columns[cell.column.name])
            place = next(name for name in columns if _as_the_method_sees(columns[name]) == seen)
            run_folder = RunFolder(out / "cells" / f"{cell.row.name}--{place}--seed{seed}")
            runs.append(CellRun(cell, seed, columns[place], run_folder))
    return runs


def _as_the_method_sees(recipe: Recipe) -> dict[str, Any]:
    """The recipe without what makes no difference to a bound."""
    method = recipe.method
    is_hidden = {
        "annotation": method.needs_complete_labels,
        "partition": method.needs_pooled_data,
    }
    return {name: value for name, value in recipe.to_dict().items() if not is_hidden.get(name)}


def run_cells(
    runs: Sequence[CellRun],
    *,
    cache: Path,
    device: str = "cpu",
    workers: int | None = None,
    report: Callable[[CellRun], None] = lambda run: None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, str]:
    """Run those that are not finished, going on where they stopped; the failed ones, with why.

    Args:
        workers: processes at a time; by default one per core, on a GPU a single one.
        report: is told of every run as it is finished.
        progress: is told how many rounds of the runs still to do are done.
    """
    waiting = [run for run in runs if not run.is_finished]
    for run in waiting:
        if run.folder.recipe.exists():  # refuses to go on with another recipe
            run.folder.begin(run.recipe, resume=True).close()
    failed: dict[str, str] = {}
    if not waiting:
        return failed
    for source in {repr(run.recipe.data): run.recipe.data for run in waiting}.values():
        source.load(cache)  # here and once, before many processes would
    unreported = list(waiting)

    def look(done: int, total: int) -> None:
        for run in [run for run in unreported if run.is_finished]:
            unreported.remove(run)
            if run.folder.checkpoints.exists():  # those of a whole table would fill the disk
                shutil.rmtree(run.folder.checkpoints)
            report(run)
        progress(done, total)

    run_all(
        {run.folder.path: run.recipe for run in waiting},
        cache=cache,
        workers=workers or (None if device == "cpu" else 1),
        device=device,
        progress=look,
        failure=lambda folder, error: failed.update({folder.name: str(error)}),
    )
    return failed
