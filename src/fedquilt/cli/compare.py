"""``fedquilt compare``: compare runs in one table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedquilt.cli.console import note, print_json, results, say
from fedquilt.cli.options import AsJson
from fedquilt.core.errors import UserError

Runs = Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders.")]
Metrics = Annotated[
    list[str] | None,
    typer.Option("--metric", help="A metric of result.json; may be repeated."),
]
Picture = Annotated[Path | None, typer.Option(help="Also draw the comparison as this PNG file.")]


def compare(
    runs: Runs, metrics: Metrics = None, as_json: AsJson = False, picture: Picture = None
) -> None:
    """Compare runs; those that differ only in their seed share one row (mean and deviation)."""
    from fedquilt.reports import comparison
    from fedquilt.reports.comparison_picture import save_comparison_picture
    from fedquilt.runs.finished_run import read_run

    repeated = len(runs) - len({path.resolve() for path in runs})
    if repeated:
        raise UserError("the same run folder was given twice; give each once")
    opened = [read_run(path) for path in runs]
    compared = comparison.compare(opened, metrics or comparison.DEFAULT_METRICS)
    if picture is not None:
        save_comparison_picture(opened, compared, picture)
    if as_json:
        print_json(compared)
        return
    results.print(comparison.comparison_table(compared))
    results.print(comparison.worst_class_table(compared))
    if compared["also_differ_in"]:
        note(f"the runs differ in more than the method: {', '.join(compared['also_differ_in'])}")
    if picture is not None:
        say(f"picture: {picture}")
