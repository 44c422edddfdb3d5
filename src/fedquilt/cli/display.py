"""The figures and tables of counts of ``fedquilt reproduce``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from fedquilt.cli.console import Notes, print_json, results, say
from fedquilt.core.errors import UserError
from fedquilt.recipes.papers import find_table
from fedquilt.recipes.papers.displays import Display
from fedquilt.recipes.papers.table import Cell, PublishedTable

if TYPE_CHECKING:
    from fedquilt.runs.reproduction import CellRun

Train = Callable[["PublishedTable", Sequence["CellRun"], Path], dict[str, str]]


def show_display(
    display: Display,
    *,
    data: str | None,
    folder: Path | None,
    cells: Sequence[str],
    rounds: int | None,
    changes: Sequence[str],
    device: str,
    cache: Path,
    out: Path | None,
    command: str,
    train: Train,
    as_json: bool,
) -> None:
    """Draw a display; runs that it needs and that are not finished are trained by ``train``.

    They are those of its table, in the table's folder.
    """
    from fedquilt.reports.displays.display import (
        Trained,
        draw_trained,
        draw_untrained,
        short_name,
        write_display,
    )
    from fedquilt.runs.finished_run import read_run
    from fedquilt.runs.reproduction import plan_runs

    table = find_table(display.table, data, rounds)
    if table.choice.name not in display.data():
        raise UserError(
            f"{display.name} has the paper's counts on {', '.join(display.data())}; there is "
            f"nothing to compare with on {table.choice.name}: leave out --data"
        )
    target = out or Path("runs") / f"{display.table.replace('/', '-')}-{table.choice.name}"
    picture = target / f"{short_name(display)}.png"
    say(f"{display.title}\non {table.choice.name}")
    with Notes():
        if display.trains:
            wanted = table.cells(cells or [display.cells])
            runs = plan_runs(table, wanted, [0], target, folder=folder, changes=changes)
            failed = train(table, runs, target)
            if failed:
                raise UserError(f"{next(iter(failed))} failed: {next(iter(failed.values()))}")
            opened = {_label(table, run): read_run(run.folder.path) for run in runs}
            test = runs[0].recipe.data.load(cache).test
            facts = draw_trained(Trained(display, opened, test, device), picture)
        else:
            row = next(row for row in table.rows if row.kind == "rival")
            recipes = {
                column.label: table.recipe(Cell(row, column), 0, folder, changes)
                for column in table.choice.columns
            }
            facts = draw_untrained(display, recipes, cache, picture)
    path = write_display(display, facts, data=table.choice.name, command=command, out=target)
    if as_json:
        print_json({"display": display.name, "files": [str(path), str(picture)], **facts})
        return
    if display.kind == "positives":
        from fedquilt.reports.displays.charts import positives_table

        results.print(positives_table(facts["ours"], facts["paper"]))
        found = facts["distance"]
        results.print(
            Text(
                f"{found['total_ours']:,} positives, {found['total_paper']:,.0f} in the paper; "
                f"{found['same_annotators']} of {found['entries']} entries have positives in both; "
                f"z {found['z']} (at most about 1 between random draws)"
            )
        )
    for remark in display.remarks:
        results.print(Text(f"- {remark}"))
    say(f"written: {picture} and {path}")


def _label(table: PublishedTable, run: CellRun) -> str:
    several = len(table.choice.columns) > 1
    return run.cell.row.label + (f", {run.cell.column.label}" if several else "")
