"""Run the cells of a published table in parallel; finished runs are reused."""

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
        """Whether the folder holds a result of this recipe; no other file is needed."""
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
    """Return a run for each cell and seed, with its folder in ``out``.

    All recipes are built here, so that a mistake is found before anything runs. If columns differ
    only in settings that a bound ignores, all of them use the first column's run.
    """
    runs = []
    for cell in cells:
        for seed in seeds:
            columns = {
                column.name: table.recipe(Cell(cell.row, column), seed, folder, changes)
                for column in table.choice.columns
            }
            used = _used_settings(columns[cell.column.name])
            place = next(name for name in columns if _used_settings(columns[name]) == used)
            run_folder = RunFolder(out / "cells" / f"{cell.row.name}--{place}--seed{seed}")
            runs.append(CellRun(cell, seed, columns[place], run_folder))
    return runs


def _used_settings(recipe: Recipe) -> dict[str, Any]:
    """Return the settings without those that a bound ignores."""
    method = recipe.method
    is_ignored = {
        "annotation": method.needs_complete_labels,
        "partition": method.needs_pooled_data,
    }
    return {name: value for name, value in recipe.to_dict().items() if not is_ignored.get(name)}


def run_cells(
    runs: Sequence[CellRun],
    *,
    cache: Path,
    devices: Sequence[str] = ("cpu",),
    workers: int | None = None,
    report: Callable[[CellRun], None] = lambda run: None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, str]:
    """Run or resume what is not finished; return the error messages of failed runs by folder.

    Args:
        runs: the planned runs.
        cache: the folder for downloaded and decoded data.
        devices: where the processes compute, in turn.
        workers: number of processes; by default one per core, or one per device that is no CPU.
        report: called with every run when it is finished.
        progress: called repeatedly with the number of finished rounds and of all rounds, of the
            runs that were not finished before.
    """
    waiting = [run for run in runs if not run.is_finished]
    for run in waiting:
        if run.folder.recipe.exists():  # raises if the folder holds a run of another recipe
            run.folder.begin(run.recipe, resume=True).close()
    failed: dict[str, str] = {}
    if not waiting:
        return failed
    for source in {repr(run.recipe.data): run.recipe.data for run in waiting}.values():
        source.load(cache)  # fill the cache once, before the processes start
    unreported = list(waiting)

    def on_progress(done: int, total: int) -> None:
        for run in [run for run in unreported if run.is_finished]:
            unreported.remove(run)
            if run.folder.checkpoints.exists():  # the checkpoints of a table would fill the disk
                shutil.rmtree(run.folder.checkpoints)
            report(run)
        progress(done, total)

    run_all(
        {run.folder.path: run.recipe for run in waiting},
        cache=cache,
        workers=workers,
        devices=devices,
        progress=on_progress,
        failure=lambda folder, error: failed.update({folder.name: str(error)}),
    )
    return failed
