"""Metrics at each site, as plain rows and as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from fedquilt.reports.style import UNDEFINED, percent, title
from fedquilt.reports.tables import MIN_POSITIVES, Rows, new_table, with_interval

SITE_AVERAGES = ("macro_auc", "map", "bacc", "macro_f1")
MAX_SITES = 20  # with more, the table shows mean and deviation only; result.json has all sites
HEADINGS = {
    "own": "Own model on its own site's test images (%)",
    "global": "Global model on each site's test images (%)",
}


def site_rows(by_site: Mapping[str, Any]) -> Rows:
    """Return one row per site, then mean and deviation over sites."""
    intervals = by_site.get("intervals", {})  # a run of an earlier version has none
    rows: Rows = [
        {
            "site": name,
            **_averages(report),
            "interval": intervals.get(name, {}).get("averages", {}).get("macro_auc"),
            "classes": report["defined"]["macro_auc"],
            "images": by_site["images"][name],
            "fewest_positives": _fewest_positives(report),
        }
        for name, report in by_site["reports"].items()
    ]
    no_counts = {"interval": None, "classes": None, "images": None, "fewest_positives": None}
    for name in ("mean", "deviation"):
        rows.append({"site": name, **{a: by_site[name][a] for a in SITE_AVERAGES}, **no_counts})
    return rows


def _averages(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the averages; without a class that can be tested they are undefined.

    Earlier versions averaged AP and F1 over classes without negatives, where both are perfect.
    """
    if report["defined"]["macro_auc"] == 0:
        return dict.fromkeys(SITE_AVERAGES)
    return {average: report["averages"][average] for average in SITE_AVERAGES}


def _fewest_positives(report: Mapping[str, Any]) -> int | None:
    """Return the smallest number of positives of any class annotated in these images."""
    pairs = zip(report["per_class"]["positives"], report["per_class"]["negatives"])
    return min((int(found) for found, absent in pairs if found + absent), default=None)


def site_table(rows: Rows, model: str) -> Table:
    table = new_table(HEADINGS[model], "site")
    for name in SITE_AVERAGES:
        table.add_column(title(name), justify="right")
    for name in ("classes", "images", "fewest positives"):
        table.add_column(name, justify="right")
    *sites, mean, deviation = rows
    shown = sites if len(sites) <= MAX_SITES else []
    for row in shown:
        counts = (f"{row['classes']}", f"{row['images']:,}", _flagged(row["fewest_positives"]))
        table.add_row(Text(row["site"]), *_percents(row), *counts)
    table.add_section()
    table.add_row("mean", *_percents(mean), style="bold")
    table.add_row("deviation", *_percents(deviation))
    table.caption = _caption(sites, shown)
    return table


def _percents(row: Mapping[str, Any]) -> list[str]:
    auc, *others = SITE_AVERAGES
    return [with_interval(row[auc], row["interval"]), *(percent(row[name]) for name in others)]


def _is_few(positives: int | None) -> bool:
    return positives is not None and positives < MIN_POSITIVES


def _flagged(positives: int | None) -> str:
    number = UNDEFINED if positives is None else f"{positives:,}"
    return f"{number} !" if _is_few(positives) else number


def _caption(sites: Rows, shown: Rows) -> str | None:
    if not shown:
        return f"over {len(sites)} sites; result.json lists each of them"
    if any(_is_few(row["fewest_positives"]) for row in shown):
        return f"! fewer than {MIN_POSITIVES} positives of a class: read these numbers with care"
    return None
