"""Many runs whose results are saved one by one, so that a benchmark can be interrupted.

A run whose recipe is in the CSV file already is not repeated.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean, stdev

from benchmarks.harness.result_csv import Row, read_results, write_results
from fedquilt.recipes.recipe import Recipe
from fedquilt.runs.parallel import run_all
from fedquilt.runs.run_folder import RunFolder

METRICS = ("macro_auc", "bacc", "map")
Key = tuple[tuple[str, str], ...]  # identifies a run: (column, value), the random seed last


def make_runs(
    name: str, wanted: Mapping[Key, Recipe], *, cache: Path, device: str, workers: int | None
) -> list[Row]:
    """Run what ``<name>_runs.csv`` lacks; return the rows of all ``wanted`` runs that succeeded."""
    rows = read_results(f"{name}_runs")
    finished = {row["recipe"] for row in rows}
    missing = {key: recipe for key, recipe in wanted.items() if recipe.hash not in finished}
    print(f"{len(wanted) - len(missing)} of {len(wanted)} runs are finished already", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        waiting = {RunFolder(Path(folder) / str(place)): key for place, key in enumerate(missing)}

        def save_finished(done: int, total: int) -> None:
            for run in [run for run in waiting if run.result.exists()]:
                key = waiting.pop(run)
                row = {**dict(key), **_numbers(run), "recipe": wanted[key].hash}
                shutil.rmtree(run.checkpoints)
                rows.append(write_results(f"{name}_runs", [row], device, earlier=rows)[0])
                print(row, f"{done} of {total} rounds", flush=True)

        run_all(
            {run.path: missing[key] for run, key in waiting.items()},
            cache=cache,
            workers=workers,
            devices=(device,),
            progress=save_finished,
            failure=lambda path, error: print(f"failed: {path.name}: {str(error)[:300]}"),
        )
    hashes = {recipe.hash for recipe in wanted.values()}
    return [row for row in rows if row["recipe"] in hashes]


def _numbers(run: RunFolder) -> Row:
    result = run.read_json(run.result)
    numbers = {metric: round(100 * result["metrics"][metric], 2) for metric in METRICS}
    return {**numbers, "seconds": round(result["seconds"], 1)}


def summary(rows: list[Row]) -> Row:
    """Return mean and standard deviation over the random seeds of one cell, in percent."""
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
    """Return one row per cell that has runs; ``columns`` identify a cell."""
    found = []
    for cell in cells:
        own = [row for row in rows if tuple(row[name] for name in columns) == cell]
        if own:
            found.append({**dict(zip(columns, cell)), **summary(own)})
    return found
