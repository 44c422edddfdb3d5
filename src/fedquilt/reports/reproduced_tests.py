"""A table's own method against its rivals on the same test images, for other patients and seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedquilt.core.errors import UserError
from fedquilt.recipes.papers.table import Column, PublishedTable, Row
from fedquilt.reports.comparison import contender_of
from fedquilt.reports.paired_tests import Contender, paired_tests
from fedquilt.runs.finished_run import read_run
from fedquilt.runs.reproduction import CellRun
from fedquilt.runs.scores import scores_path


def tests_of_columns(table: PublishedTable, runs: Sequence[CellRun]) -> list[dict[str, Any]]:
    """Return, for each column, the tests of the macro-AUC of the criterion's row and its rivals.

    Runs whose folders keep no scores of the test images, such as those of another machine of which
    only the results were copied, are left out.
    """
    scored = [run for run in runs if run.is_finished and scores_path(run.folder.path).exists()]
    rivals = sorted(
        (row for row in table.rows if row.kind == "rival"),
        key=lambda row: row.name != table.criterion.row,  # the method itself first
    )
    found: list[dict[str, Any]] = []
    for column in table.choice.columns:
        rows = [_contender(row, column, scored) for row in rivals]
        present = [row for row in rows if row is not None]
        if len(present) < 2 or rows[0] is None:
            continue
        try:
            tests = paired_tests(present, of=rows[0].label)
        except UserError as error:  # other test images, as after a change of the data
            found.append({"column": column.label, "tests": [], "why_not": str(error)})
            continue
        shown = [{k: v for k, v in test.to_dict().items() if k != "classes"} for test in tests]
        found.append({"column": column.label, "tests": shown, "why_not": None})
    return found


def _contender(row: Row, column: Column, runs: Sequence[CellRun]) -> Contender | None:
    own = [run for run in runs if (run.cell.row, run.cell.column) == (row, column)]
    if not own:
        return None
    return contender_of(row.label, [read_run(run.folder.path) for run in own])
