"""What verbs share that train several runs and compare them: options, progress and the end."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedquilt.cli.compare import show_comparison
from fedquilt.cli.console import Notes, print_json, say
from fedquilt.cli.options import require_device
from fedquilt.cli.progress import RoundsProgress
from fedquilt.core.errors import UserError

if TYPE_CHECKING:
    from fedquilt.recipes.recipe import Recipe

Workers = Annotated[
    int | None,
    typer.Option(min=1, help="Runs at a time. Default: one per core, or one per GPU of --devices."),
]
Devices = Annotated[
    str, typer.Option(metavar="DEVICE[,DEVICE]", help="Where runs compute: cpu, or cuda:0,cuda:1.")
]


def device_list(devices: str) -> tuple[str, ...]:
    found = tuple(device.strip() for device in devices.split(","))
    for device in found:
        require_device(device)
    return found


def train_and_compare(
    recipes: Mapping[Path, Recipe],
    out: Path,
    *,
    cache: Path,
    workers: int | None,
    devices: tuple[str, ...],
) -> dict[str, Any]:
    """Train what is not finished, write each run's report, and return the comparison.

    It is written into ``out`` as well.
    """
    from fedquilt.core.atomic_files import write_json
    from fedquilt.reports.comparison import compare
    from fedquilt.reports.comparison_picture import save_comparison_picture
    from fedquilt.reports.html.comparison_report import REPORT_FILE, write_comparison_report
    from fedquilt.reports.run_with_report import with_report
    from fedquilt.runs.finished_run import read_run
    from fedquilt.runs.parallel import run_all

    for source in {repr(recipe.data): recipe.data for recipe in recipes.values()}.values():
        source.load(cache)  # fill the cache once, before the processes start
    failed: dict[Path, Exception] = {}
    with Notes(), RoundsProgress() as progress:
        run_all(
            recipes,
            cache=cache,
            workers=workers,
            devices=devices,
            progress=progress,
            failure=failed.__setitem__,
        )
    if failed:
        folder, error = next(iter(failed.items()))
        raise UserError(
            f"{len(failed)} of {len(recipes)} runs failed, the first is {folder}: {error}; the "
            "others are kept, so the same command goes on"
        ) from error
    runs = [
        with_report(read_run(folder), recipe.data.load(cache)) for folder, recipe in recipes.items()
    ]
    compared = compare(runs)
    save_comparison_picture(runs, compared, out / "comparison.png")
    write_json(out / "comparison.json", compared)
    write_comparison_report(compared, out / REPORT_FILE)
    return compared


def show(compared: dict[str, Any], out: Path, *, as_json: bool) -> None:
    if as_json:
        print_json(compared)
        return
    show_comparison(compared)
    files = "comparison.html, comparison.json and comparison.png"
    say(f"written: {files} in {out}, a report.html in each run folder")
