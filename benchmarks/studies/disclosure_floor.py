"""Cost of the disclosure floor in accuracy: FedMLP on digit mosaics, at large and small sites.

python -m benchmarks.studies.disclosure_floor
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.harness.result_csv import write_results
from fedquilt.recipes.recipe import Recipe, read_recipe
from fedquilt.runs.finished_run import read_run
from fedquilt.runs.parallel import run_all
from fedquilt.runs.simulation import simulate

RECIPE = Path("src/fedquilt/recipes/files/digits-fedmlp.toml")
SITES = 5
# (images at a site, min_cell): two labels in five are positive. At small sites the share of
# pseudo-labels is rounded up: rounded down it would be 0, and prototypes would have no effect.
CELLS = [(100, 0), (100, 10), (100, 60), (20, 0), (20, 10)]


def recipe_of(images: int, min_cell: int, seed: int) -> Recipe:
    settings = {
        "seed": seed,
        "data.seed": seed,
        "data.train": SITES * images,
        "min_cell": min_cell,
        "method.rounding": '"floor"' if images >= 100 else '"ceil"',
        "evaluation.every": 30,
        "checkpoint_every": 30,
    }
    return read_recipe(RECIPE, [f"{place}={value}" for place, value in settings.items()])


def sites_above(recipe: Recipe, cache: Path) -> int:
    """Count the sites that send prototypes: those with enough positives and negatives."""
    count = 0
    for data in simulate(recipe, cache).clients.values():
        positives, annotated = int(data.positive_counts().sum()), int(data.annotated_counts().sum())
        count += min(positives, annotated - positives) >= recipe.min_cell
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[21, 22, 23, 24, 25])
    parser.add_argument("--workers", type=int, default=None)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        recipes = {
            folder / f"{images}-{min_cell}-{seed}": recipe_of(images, min_cell, seed)
            for images, min_cell in CELLS
            for seed in options.seeds
        }
        run_all(recipes, cache=folder, workers=options.workers)
        for images, min_cell in CELLS:
            places = [folder / f"{images}-{min_cell}-{seed}" for seed in options.seeds]
            results = [read_run(place).result for place in places]
            row: dict[str, Any] = {"images_a_site": images, "min_cell": min_cell}
            above = [sites_above(recipes[place], folder) for place in places]
            row["sites_above_the_floor"] = " ".join(map(str, above))
            for metric in ("macro_auc", "bacc"):
                values = [100 * result["metrics"][metric] for result in results]
                row[metric] = round(statistics.fmean(values), 1)
                row[f"{metric}_deviation"] = round(statistics.stdev(values), 1)
                row[f"{metric}_per_seed"] = " ".join(f"{value:.1f}" for value in values)
            rows.append(row | {"seeds": " ".join(map(str, options.seeds))})
            print(row)
    write_results("studies/disclosure_floor", rows)


if __name__ == "__main__":
    main()
