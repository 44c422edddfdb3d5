"""A reproduced table in the terminal, as CSV, as JSON and as a picture file."""

from __future__ import annotations

import csv
import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from fedquilt.core.atomic_files import write_json
from fedquilt.recipes.papers.published_numbers import AVERAGE
from fedquilt.reports.html.reproduced_report import REPORT_FILE, write_reproduced_report
from fedquilt.reports.reproduced_picture import save_reproduced_picture
from fedquilt.reports.style import UNDEFINED
from fedquilt.reports.tables import new_table


def write_reproduced(
    summary: Mapping[str, Any], out: Path, command: str, *, with_picture: bool = False
) -> None:
    """Write the table's files to ``out`` if any run is finished.

    They are ``table.json`` and ``table.csv``, with a picture ``table.png`` and ``report.html``.
    """
    if not summary["rows"]:
        return
    write_json(out / "table.json", {"command": command, **summary})
    write_csv(summary, out / "table.csv", command)
    if with_picture:
        save_reproduced_picture(summary, out / "table.png")
        write_reproduced_report({"command": command, **summary}, out / REPORT_FILE)


def write_csv(summary: Mapping[str, Any], path: Path, command: str) -> None:
    """Write a line per method, column and metric, each with date, command and versions."""
    origin = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "command": command,
        "hardware": _facts(summary, "device", "cores"),
        "versions": _facts(summary, "fedquilt", "torch", "python"),
    }
    lines = [
        {
            "table": summary["table"],
            "data": summary["data"],
            "method": row["label"],
            "kind": row["kind"],
            "column": column,
            "metric": metric,
            "ours": _rounded(numbers["mean"]),
            "deviation": _rounded(numbers["deviation"]),
            "per_seed": " ".join(_rounded(value) for value in numbers["values"]),
            **{
                f"published_{reference}": _rounded(published)
                for reference, published in numbers["published"].items()
            },
            "seconds_per_run": f"{row['runs'][column]['seconds_per_run']:.1f}",
            "seeds": " ".join(map(str, row["runs"][column]["seeds"])),
            **origin,
        }
        for row in summary["rows"]
        for column, metrics in row["columns"].items()
        for metric, numbers in metrics.items()
    ]
    if lines:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, [*lines[0]], lineterminator="\n")
            writer.writeheader()
            writer.writerows(lines)


def _rounded(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _facts(summary: Mapping[str, Any], *names: str) -> str:
    """Join facts about the runs' environments, without repetitions."""
    facts = [", ".join(f"{name} {env[name]}" for name in names) for env in summary["environments"]]
    return "; ".join(dict.fromkeys(facts))


def metric_table(summary: Mapping[str, Any], metric: str) -> Table:
    """For each method, a line with our numbers and one for each of the paper's data sets."""
    columns = _columns(summary)
    spread = any(len(row["seeds"]) > 1 for row in summary["rows"])
    meaning = ", ours mean ± standard deviation over seeds" if spread else ""
    table = new_table(f"{summary['metrics'][metric]} (%){meaning}", "method")
    for label in columns.values():
        table.add_column(label, justify="right", no_wrap=True)
    table.add_column("s", justify="right")
    table.caption = "indented: the paper's data set and its numbers; s: seconds per run"
    for row in summary["rows"]:
        cells = [row["columns"].get(column, {}).get(metric, {}) for column in columns]
        seconds = f"{row['seconds_per_run']:.0f}"
        table.add_row(Text(row["label"], style="bold"), *map(_ours, cells), seconds)
        for reference in summary["references"]:
            published = [cell.get("published", {}).get(reference) for cell in cells]
            if any(number is not None for number in published):
                numbers = [UNDEFINED if each is None else f"{each:.1f}" for each in published]
                table.add_row(f"  {reference}", *numbers, "", style="dim")
    return table


def _columns(summary: Mapping[str, Any]) -> dict[str, str]:
    has_average = any(AVERAGE in row["columns"] for row in summary["rows"])
    return {**summary["columns"], **({AVERAGE: AVERAGE} if has_average else {})}


def _ours(cell: Mapping[str, Any]) -> str:
    mean, deviation = cell.get("mean"), cell.get("deviation")
    if mean is None:
        return UNDEFINED
    return f"{mean:.1f}" + ("" if deviation is None else f"±{deviation:.1f}")


def agreement_table(summary: Mapping[str, Any]) -> Table | None:
    """Return the rank correlations with the paper; None if too few methods have both numbers."""
    found = {
        (each["reference"], each["metric"], each["column"]): each
        for each in summary["rank_agreement"]
    }
    if not found:
        return None
    columns = _columns(summary)
    table = new_table("Agreement with the paper's ranking (Spearman)", "paper's data")
    table.add_column("metric")
    for label in columns.values():
        table.add_column(label, justify="right", no_wrap=True)
    table.add_column("methods", justify="right")
    for reference, metric in dict.fromkeys((place[0], place[1]) for place in found):
        places = [found.get((reference, metric, column)) for column in columns]
        numbers = [UNDEFINED if each is None else f"{each['spearman']:+.2f}" for each in places]
        methods = max(each["methods"] for each in places if each is not None)
        table.add_row(Text(reference), summary["metrics"][metric], *numbers, str(methods))
    table.caption = "1: the same order, 0: unrelated, -1: the opposite; bounds are left out"
    return table
