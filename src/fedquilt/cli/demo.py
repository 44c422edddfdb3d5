"""``fedquilt demo``: compares ways to treat unannotated labels, in a minute or two."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedquilt.cli.console import print_json, results, say
from fedquilt.cli.options import AsJson
from fedquilt.cli.progress import RoundsProgress

if TYPE_CHECKING:
    from fedquilt.recipes.recipe import Recipe
    from fedquilt.runs.finished_run import Run

Out = Annotated[Path, typer.Option(help="Folder for runs, tables and pictures.")]
Seeds = Annotated[int, typer.Option(min=1, max=3, help="Number of random seeds; 1 is fastest.")]


def demo(out: Out = Path("runs/demo"), seeds: Seeds = 3, as_json: AsJson = False) -> None:
    """Train FedAvg, FedAvg-PL, FedMLP, QUILT and the full-label bound on digits; compare them."""
    from fedquilt.core.atomic_files import write_json
    from fedquilt.reports.comparison import compare
    from fedquilt.runs.demo import METHODS, SEEDS, conclusions, demo_recipes
    from fedquilt.runs.finished_run import read_run

    began = time.perf_counter()
    recipes = demo_recipes(out, SEEDS[:seeds])
    say(
        "Five sites hold 100 images each, with one to three digits per image. Each site "
        f"annotates one digit and leaves the others blank. {len(recipes)} runs: "
        f"{len(METHODS)} methods, seeds {', '.join(map(str, SEEDS[:seeds]))}."
    )
    _train(recipes)
    runs = [read_run(folder) for folder in recipes]
    compared = compare(runs)
    compared["conclusions"] = conclusions(compared)
    compared["seconds"] = round(time.perf_counter() - began, 1)
    write_json(out / "comparison.json", compared)
    pictures = _draw(out, runs, compared)
    if as_json:
        print_json(compared)
    else:
        _show(compared, [out / "comparison.json", *pictures])


def _train(recipes: dict[Path, Recipe]) -> None:
    from fedquilt.runs.experiment import CACHE
    from fedquilt.runs.parallel import run_all

    with RoundsProgress() as progress:
        run_all(recipes, cache=CACHE, progress=progress)


def _draw(out: Path, runs: list[Run], compared: dict[str, Any]) -> list[Path]:
    """Draw the comparison, and the pictures of the first FedMLP run."""
    from fedquilt.reports.comparison_picture import save_comparison_picture
    from fedquilt.reports.run_pictures import save_run_pictures
    from fedquilt.runs.experiment import CACHE

    picture = out / "comparison.png"
    save_comparison_picture(runs, compared, picture)
    first = next(run for run in runs if run.result["method"] == "fedmlp")
    return [picture, *save_run_pictures(first, first.recipe.data.load(CACHE).train)]


def _show(compared: dict[str, Any], files: list[Path]) -> None:
    from fedquilt.reports.comparison import comparison_table, worst_class_table

    results.print(comparison_table(compared))
    results.print(worst_class_table(compared))
    for sentence in compared["conclusions"]:
        results.print(sentence, highlight=False)
    say(f"Finished in {compared['seconds']:.0f} s. Files:")
    for file in files:
        say(f"  {file}")
    program = shlex.quote(sys.argv[0])  # `make demo` runs it without a search path
    say("Next:")
    say(f"  your own images     {program} data check FOLDER --labels CSV     (docs/own_data.md)")
    say(f"  more methods        {program} reproduce fedmlp/table1 --data digits")
    say("  several hospitals   make deploy-demo     (docs/guides/deployment.md)")
