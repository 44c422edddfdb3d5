"""``fedquilt reproduce``: run the cells of a paper's table and compare the numbers."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from fedquilt.cli.console import Notes, note, print_json, results, say
from fedquilt.cli.display import show_display
from fedquilt.cli.options import DEFAULT_CACHE, AsJson, Cache
from fedquilt.cli.progress import RoundsProgress
from fedquilt.cli.run import Changes
from fedquilt.cli.several_runs import device_list
from fedquilt.core.errors import UserError, nearest
from fedquilt.core.wording import counted
from fedquilt.recipes.papers import TABLES, find_table
from fedquilt.recipes.papers.displays import DISPLAYS
from fedquilt.reports.style import percent

if TYPE_CHECKING:
    from fedquilt.recipes.papers.table import PublishedTable
    from fedquilt.runs.reproduction import CellRun

Name = Annotated[str, typer.Argument(metavar="TABLE", help="A name of `list tables`.")]
Data = Annotated[str | None, typer.Option(help="The dataset. Default: the paper's.")]
Folder = Annotated[Path | None, typer.Option("--from", help="The folder with the dataset's files.")]
Seeds = Annotated[int, typer.Option(min=1, help="Runs per cell, with seeds 0, 1, ...")]
Cells = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ROWS/COLUMNS", help="Only these cells, in this order: 'fedmlp,fedavg/missing-*'."
    ),
]
Rounds = Annotated[
    int | None, typer.Option(min=1, help="Rounds per run; stages of methods are scaled.")
]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Concurrent runs. Default: one per core, or one per GPU.")
]
Devices = Annotated[
    str,
    typer.Option(
        "--device",
        "--devices",
        metavar="DEVICE[,DEVICE]",
        help="Where runs compute: cpu, cuda, or cuda:0,cuda:1.",
    ),
]
Out = Annotated[Path | None, typer.Option(help="Default: runs/PAPER-TABLE-DATA.")]


def reproduce(
    table: Name,
    data: Data = None,
    folder: Folder = None,
    seeds: Seeds = 1,
    cells: Cells = None,
    rounds: Rounds = None,
    changes: Changes = None,
    devices: Devices = "cpu",
    workers: Workers = None,
    cache: Cache = DEFAULT_CACHE,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Run a paper's table and show its numbers beside ours, or draw one of its figures.

    The exit code is 1 if the table's criterion does not hold or a cell failed, otherwise 0, also
    if the cells that ran cannot decide the criterion.
    """
    from fedquilt.runs.reproduction import plan_runs

    spread = device_list(devices)
    if table in DISPLAYS:
        if seeds > 1:
            raise UserError(f"{table} is drawn from one seed; leave out --seeds")
        command = _command(
            table,
            data=[] if data is None else [data],
            **{"from": [] if folder is None else ["FOLDER"]},
            cells=cells or [],
            rounds=[] if rounds is None else [rounds],
            set=changes or [],
            device=[devices],
        )

        def train(needed: PublishedTable, runs: Sequence[CellRun], target: Path) -> dict[str, str]:
            failed: dict[str, str] = _run(
                needed, runs, target, command, cache=cache, devices=spread, workers=workers
            )["failed"]
            return failed

        show_display(
            DISPLAYS[table],
            data=data,
            folder=folder,
            cells=cells or (),
            rounds=rounds,
            changes=changes or (),
            device=spread[0],
            cache=cache,
            out=out,
            command=command,
            train=train,
            as_json=as_json,
        )
        return
    if table not in TABLES:
        known = (*TABLES, *DISPLAYS)
        raise UserError(f"unknown table or figure {table!r}{nearest(table, known)}")
    chosen = find_table(table, data, rounds)
    target = out or Path("runs") / f"{table.replace('/', '-')}-{chosen.choice.name}"
    wanted = chosen.cells(cells or ())
    runs = plan_runs(chosen, wanted, range(seeds), target, folder=folder, changes=changes or ())
    folders = {run.folder.path: run.is_finished for run in runs}
    done = sum(folders.values())
    say(
        f"{chosen.title}\non {chosen.choice.name}: {counted(len(folders), 'run')} of "
        f"{counted(chosen.rounds, 'round')}" + (f", {done} of them finished before" if done else "")
    )
    command = _command(
        table,
        data=[chosen.choice.name],
        **{"from": [] if folder is None else ["FOLDER"]},  # the path is of this machine
        seeds=[seeds],
        cells=cells or [],
        rounds=[] if rounds is None else [rounds],
        set=changes or [],
        device=[devices],
    )
    summary = _run(chosen, runs, target, command, cache=cache, devices=spread, workers=workers)
    if as_json:
        print_json(summary)
    else:
        _show(summary, target)
    for name, error in summary["failed"].items():
        note(f"{name} failed: {error}")
    if summary["failed"] or summary["criterion"]["holds"] is False:
        raise typer.Exit(1)


def _command(table: str, **options: Sequence[object]) -> str:
    """Return the command that repeats the runs, for the result files."""
    given = [word for name, values in options.items() for v in values for word in (f"--{name}", v)]
    return shlex.join(["fedquilt", "reproduce", table, *map(str, given)])


def _run(
    table: PublishedTable,
    runs: Sequence[CellRun],
    out: Path,
    command: str,
    *,
    cache: Path,
    devices: Sequence[str],
    workers: int | None,
) -> dict[str, Any]:
    """Return the summary with failed runs and their errors; write the files after every run."""
    from fedquilt.reports.reproduced import reproduced
    from fedquilt.reports.reproduced_table import write_reproduced
    from fedquilt.reports.reproduced_tests import tests_of_columns
    from fedquilt.runs.reproduction import run_cells

    def report(run: CellRun) -> None:
        result, metric = run.result, table.criterion.metric
        number = f"{table.labels[metric]} {percent(result['metrics'][metric])}"
        say(f"{run.cell.name}, seed {run.seed}: {number}, {result['seconds']:.0f} s")
        write_reproduced(reproduced(table, runs), out, command)

    try:
        with Notes(), RoundsProgress() as progress:
            failed = run_cells(
                runs,
                cache=cache,
                devices=devices,
                workers=workers,
                report=report,
                progress=progress,
            )
    except KeyboardInterrupt:
        say(f"\nstopped; run the same command again to resume from {out}")
        raise typer.Exit(130) from None
    tests = tests_of_columns(table, runs)
    summary = reproduced(table, runs) | {"tests": tests, "failed": failed}
    write_reproduced(summary, out, command, with_picture=True)
    return summary


def _show(summary: dict[str, Any], out: Path) -> None:
    from fedquilt.reports.reproduced_table import agreement_table, metric_table

    if not summary["rows"]:
        return
    for metric in summary["metrics"]:
        results.print(metric_table(summary, metric))
    agreement = agreement_table(summary)
    if agreement is not None:
        results.print(agreement)
    for remark in summary["remarks"]:
        results.print(Text(f"- {remark}"))
    criterion = summary["criterion"]
    verdict = {True: "holds", False: "does not hold", None: "cannot be judged"}[criterion["holds"]]
    results.print(Text(f"\nCriterion: {criterion['words']}: {verdict}. {criterion['found']}."))
    tested = [test for column in summary["tests"] for test in column["tests"]]
    if tested:
        ahead = sum(test["macro_auc"]["ahead"] == criterion["method"] for test in tested)
        results.print(
            Text(
                f"For other patients and seeds {criterion['method']} is significantly ahead by "
                f"macro-AUC in {ahead} of {len(tested)} pairs (5 %, Holm within a column); "
                "report.html has them."
            )
        )
    say(f"written: table.json, table.csv, table.png and report.html in {out}")
