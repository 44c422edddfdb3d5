"""The report of a reproduced table: our numbers beside the paper's, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedquilt.core.atomic_files import write_bytes
from fedquilt.core.version import VERSION
from fedquilt.core.wording import counted
from fedquilt.recipes.papers.published_numbers import AVERAGE
from fedquilt.reports.html.comparison_report import difference_rows
from fedquilt.reports.html.formatting import number
from fedquilt.reports.html.page import render_page
from fedquilt.reports.style import UNDEFINED

REPORT_FILE = "report.html"
VERDICTS = {True: "holds", False: "does not hold", None: "cannot be judged"}
LIMITS = (
    "The interval of the verdict is over random seeds: how much of the lead may be chance in "
    "training, on these test images. Section 3 tests for other patients as well.",
    "Only seeds that both methods have are compared. Bounds see labels that no site has "
    "annotated, so they are not ranked.",
)


def write_reproduced_report(summary: Mapping[str, Any], out: Path) -> Path:
    """Write the report of a table, as ``table.json`` holds it."""
    page = render_page("reproduced.html", reproduced_content(summary))
    out.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(out, page.encode("utf-8"))
    return out


def reproduced_content(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return everything that the template prints."""
    rows, criterion = summary["rows"], summary["criterion"]
    columns = dict(summary["columns"])
    if any(AVERAGE in row["columns"] for row in rows):
        columns[AVERAGE] = AVERAGE
    runs = sum(len(row["runs"][name]["seeds"]) for row in rows for name in summary["columns"]
               if name in row["runs"])  # fmt: skip
    return {
        "title": summary["title"],
        "lead": f"Reproduced on {summary['data']} · {counted(runs, 'run')}",
        "tiles": [
            (VERDICTS[criterion["holds"]], f"criterion: {criterion['words']}"),
            (str(len(rows)), "rows that have run, bounds and variants among them"),
            (_span(summary["rounds"]), "rounds of a run"),
        ],
        "found": f"{criterion['found']}.",
        "remarks": summary["remarks"],
        "limits": LIMITS,
        "columns": list(columns.values()),
        "metrics": [
            {"title": label, "rows": [_row(row, name, columns) for row in rows]}
            for name, label in summary["metrics"].items()
        ],
        "tests": [
            {
                "column": each["column"],
                "why_not": each["why_not"],
                "differences": difference_rows(each["tests"]),
                "words": [test["words"] for test in each["tests"] if test["why_not"]],
            }
            for each in summary.get("tests", ())
        ],
        "agreement": [
            {
                "reference": each["reference"],
                "metric": summary["metrics"][each["metric"]],
                "column": columns.get(each["column"], each["column"]),
                "methods": str(each["methods"]),
                "spearman": f"{each['spearman']:+.2f}",
            }
            for each in summary["rank_agreement"]
        ],
        "same_data": summary["references"],
        "command": summary.get("command", "fedquilt reproduce TABLE"),
        "environments": summary["environments"],
        "version": VERSION,
    }


def _row(row: Mapping[str, Any], metric: str, columns: Mapping[str, str]) -> dict[str, Any]:
    return {
        "name": row["label"],
        "kind": row["kind"],
        "seeds": str(len(row["seeds"])),
        "cells": [_cell(row["columns"].get(name, {}).get(metric)) for name in columns],
    }


def _cell(found: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return our number first, so that it sorts, and the paper's below it."""
    if found is None:
        return {"value": UNDEFINED, "published": []}
    spread = "" if found["deviation"] is None else f" ± {number(found['deviation'], 1)}"
    published = [
        f"{name}: {number(value, 1)}"
        for name, value in found["published"].items()
        if value is not None
    ]
    return {"value": f"{number(found['mean'], 1)}{spread}", "published": published}


def _span(rounds: list[int]) -> str:
    if not rounds:
        return UNDEFINED
    return str(rounds[0]) if len(rounds) == 1 else f"{rounds[0]}–{rounds[-1]}"
