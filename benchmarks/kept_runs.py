"""Many runs whose results are kept one by one: a run that is in the CSV is not made again.

A borrowed machine may be gone before the last run is done.
"""

from __future__ import annotations

import csv
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from benchmarks.recording import RESULTS, write_results
from fedquilt.recipes.recipe import Recipe
from fedquilt.runs.parallel import run_all
from fedquilt.runs.run_folder import RunFolder

METRICS = ("macro_auc", "bacc", "map")
Row = dict[str, Any]
Facts = tuple[tuple[str, str], ...]  # what tells a run from others: (column, value), the seed last


def make_runs(
    name: str, wanted: Mapping[Facts, Recipe], *, cache: Path, device: str, workers: int | None
) -> list[Row]:
    """Make those that ``<name>_runs.csv`` lacks; the rows of all of ``wanted`` that succeeded."""
    rows = _read(f"{name}_runs")
    known = {row["recipe"] for row in rows}
    missing = {facts: recipe for facts, recipe in wanted.items() if recipe.hash not in known}
    print(f"{len(wanted) - len(missing)} of {len(wanted)} runs are there already", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        waiting = {
            RunFolder(Path(folder) / str(place)): facts for place, facts in enumerate(missing)
        }

        def look(done: int, total: int) -> None:
            for run in [run for run in waiting if run.result.exists()]:
                facts = waiting.pop(run)
                row = {**dict(facts), **_numbers(run), "recipe": wanted[facts].hash}
                shutil.rmtree(run.checkpoints)
                rows.append(write_results(f"{name}_runs", [row], device, earlier=rows)[0])
                print(row, f"{done} of {total} rounds", flush=True)

        run_all(
            {run.path: missing[facts] for run, facts in waiting.items()},
            cache=cache,
            workers=workers,
            device=device,
            progress=look,
            failure=lambda path, error: print(f"failed: {path.name}: {str(error)[:300]}"),
        )
    hashes = {recipe.hash for recipe in wanted.values()}
    return [row for row in rows if row["recipe"] in hashes]


def _read(name: str) -> list[Row]:
    path = RESULTS / f"{name}.csv"
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _numbers(run: RunFolder) -> Row:
    result = run.read_json(run.result)
    numbers = {metric: round(100 * result["metrics"][metric], 2) for metric in METRICS}
    return {**numbers, "seconds": round(result["seconds"], 1)}


def summary(rows: list[Row]) -> Row:
    """Mean and deviation over one cell's seeds, in percent."""
    rows = sorted(rows, key=lambda row: int(row["seed"]))
    found: Row = {"runs": len(rows), "seeds": " ".join(str(row["seed"]) for row in rows)}
    for metric in METRICS:
        values = [float(row[metric]) for row in rows]
        found[metric] = round(fmean(values), 2)
        found[f"{metric}_deviation"] = round(stdev(values), 2) if len(values) > 1 else ""
        found[f"{metric}_per_seed"] = " ".join(f"{value:.2f}" for value in values)
    found["seconds_per_run"] = round(fmean(float(row["seconds"]) for row in rows), 1)
    return found


def summaries(
    rows: list[Row], columns: tuple[str, ...], cells: Iterable[tuple[str, ...]]
) -> list[Row]:
    """One row for each cell, told by its ``columns``, of which there are runs."""
    found = []
    for cell in cells:
        own = [row for row in rows if tuple(row[name] for name in columns) == cell]
        if own:
            found.append({**dict(zip(columns, cell)), **summary(own)})
    return found
