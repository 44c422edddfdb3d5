"""``fedquilt compare``: compare runs in one table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedquilt.cli.console import note, print_json, results, say
from fedquilt.cli.options import AsJson
from fedquilt.core.errors import UserError

if TYPE_CHECKING:
    from fedquilt.runs.finished_run import Run

Runs = Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders.")]
Metrics = Annotated[
    list[str] | None,
    typer.Option("--metric", help="A metric of result.json; may be repeated."),
]
Picture = Annotated[Path | None, typer.Option(help="Also draw the comparison as this PNG file.")]
Report = Annotated[
    Path | None,
    typer.Option(help="The comparison as an HTML file. Default: comparison.html beside the runs."),
]
AcrossDataSets = Annotated[
    bool,
    typer.Option("--across-data-sets", help="Rank methods over data sets (Friedman, Nemenyi)."),
]
Form = Annotated[
    str | None,
    typer.Option("--format", help="Print csv, markdown or latex instead of tables."),
]
RoundsTo = Annotated[
    str | None,
    typer.Option(metavar="METRIC=LEVEL", help="Also how many rounds a level takes: map=0.7."),
]


def compare(
    runs: Runs,
    metrics: Metrics = None,
    form: Form = None,
    rounds_to: RoundsTo = None,
    across_data_sets: AcrossDataSets = False,
    as_json: AsJson = False,
    picture: Picture = None,
    report: Report = None,
) -> None:
    """Compare runs; those that differ only in their seed share one row (mean and deviation).

    A star marks a method that is significantly ahead of every other, not the largest number.
    """
    from fedquilt.reports import comparison
    from fedquilt.reports.comparison_files import written
    from fedquilt.reports.comparison_picture import save_comparison_picture
    from fedquilt.reports.convergence import convergence
    from fedquilt.reports.html.comparison_report import write_comparison_report
    from fedquilt.runs.finished_run import read_run

    repeated = len(runs) - len({path.resolve() for path in runs})
    if repeated:
        raise UserError("the same run folder was given twice; give each once")
    if as_json and form is not None:
        raise UserError("--json and --format exclude each other; give one of them")
    opened = [read_run(path) for path in runs]
    if rounds_to is not None and (across_data_sets or form is not None):
        raise UserError("--rounds-to goes with neither --across-data-sets nor --format")
    if across_data_sets:
        if report is not None:
            raise UserError("--across-data-sets writes no report; leave out --report")
        _across_data_sets(opened, metrics, form, picture, as_json=as_json)
        return
    compared = comparison.compare(opened, metrics or comparison.DEFAULT_METRICS)
    if rounds_to is not None:
        compared["rounds_to"] = convergence(opened, rounds_to)
    if picture is not None:
        save_comparison_picture(opened, compared, picture)
    if report is not None or not (as_json or form):
        report = write_comparison_report(compared, report or beside(runs))
    if as_json:
        print_json(compared)
        return
    if form is not None:
        typer.echo(written(compared, form), nl=False)
        return
    show_comparison(compared)
    say(f"report: {report}")
    if picture is not None:
        say(f"picture: {picture}")


def beside(runs: Sequence[Path]) -> Path:
    """Where the report of these runs goes: beside them, or here if they are not together."""
    from fedquilt.reports.html.comparison_report import REPORT_FILE

    folders = {path.resolve().parent for path in runs}
    return (runs[0].parent if len(folders) == 1 else Path()) / REPORT_FILE


def show_comparison(compared: dict[str, Any]) -> None:
    """Print the tables of a comparison."""
    from fedquilt.reports import comparison

    results.print(comparison.comparison_table(compared))
    results.print(comparison.worst_class_table(compared))
    differences = comparison.difference_table(compared)
    if differences is not None:
        results.print(differences)
    if "rounds_to" in compared:
        from fedquilt.reports.convergence import convergence_table

        results.print(convergence_table(compared["rounds_to"]))
    for test in compared["tests"]:
        say(test["words"])
    if many := comparison.many_tests_sentence(compared["tests"]):
        say(many)
    if compared["also_differ_in"]:
        note(f"the runs differ in more than the method: {', '.join(compared['also_differ_in'])}")


def _across_data_sets(
    runs: Sequence[Run],
    metrics: Sequence[str] | None,
    form: str | None,
    picture: Path | None,
    *,
    as_json: bool,
) -> None:
    from fedquilt.reports import data_set_comparison

    if form is not None or (metrics and len(metrics) > 1):
        raise UserError("--across-data-sets takes one --metric, and prints a table or --json")
    metric = metrics[0] if metrics else "macro_auc"
    compared = data_set_comparison.compare_over_data_sets(runs, metric)
    if picture is not None:
        data_set_comparison.save_rank_picture(compared, picture)
    if as_json:
        print_json(compared)
        return
    results.print(data_set_comparison.data_set_table(compared))
    say(compared["words"])
    if picture is not None:
        say(f"picture: {picture}")
