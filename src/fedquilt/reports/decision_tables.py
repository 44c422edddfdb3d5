"""Thresholds and calibration of a model, as tables: what was fitted, and its quality."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from fedquilt.reports.style import UNDEFINED, percent
from fedquilt.reports.tables import Rows, new_table


def threshold_rows(stored: Mapping[str, Any], quality: Mapping[str, Any]) -> Rows:
    """Return one row per class with a threshold of its own.

    Args:
        stored: ``thresholds`` of ``model.json``.
        quality: the same classes on the images that are judged, as in result.json.
    """
    return [
        {
            "class": name,
            "rule": entry.get("rule", stored["rule"]),
            "threshold": entry["probability"],
            "why_not_fitted": entry.get("fallback"),
            "promised": {kind: entry.get(kind) for kind in ("sensitivity", "specificity")},
            **{kind: quality.get(name, {}).get(kind) for kind in ("sensitivity", "specificity")},
        }
        for name, entry in stored["classes"].items()
    ]


def threshold_table(rows: Rows, stored: Mapping[str, Any]) -> Table:
    table = new_table("Thresholds (%): chosen on validation, then on these images", "class")
    table.add_column("rule", overflow="fold")
    for name in ("threshold", "promised sensitivity", "here", "promised specificity", "here"):
        table.add_column(name, justify="right")
    reasons: dict[str, list[str]] = {}
    for row in rows:
        why = row["why_not_fitted"]
        if why:
            reasons.setdefault(why, []).append(row["class"])
        cells = [
            cell
            for kind in ("sensitivity", "specificity")
            for cell in (percent(row["promised"][kind]), _with_interval(row[kind]))
        ]
        mark = " *" if why else ""
        table.add_row(
            Text(row["class"]), Text(row["rule"]), f"{percent(row['threshold'])}{mark}", *cells
        )
    lines = [f"* not fitted for {', '.join(names)}: {why}" for why, names in reasons.items()]
    table.caption = Text("\n".join(lines)) if lines else _where(stored)
    return table


def calibration_rows(stored: Mapping[str, Any], quality: Mapping[str, Any]) -> Rows:
    """Return one row per class: Brier score, slope and ECE, raw and calibrated."""
    return [
        {
            "class": name,
            "why_not_fitted": entry.get("fallback"),
            **{
                f"{measure}_{state}": quality.get(name, {}).get(state, {}).get(measure)
                for measure in ("brier", "slope", "ece")
                for state in ("raw", "calibrated")
            },
        }
        for name, entry in stored["classes"].items()
    ]


def calibration_table(rows: Rows, stored: Mapping[str, Any]) -> Table:
    table = new_table(f"Calibration by {stored['method']}, before and after", "class")
    for name in ("Brier", "after", "slope (1 is right)", "after", "ECE (%)", "after"):
        table.add_column(name, justify="right")
    for row in rows:
        cells = []
        for state in ("raw", "calibrated"):
            brier, slope = row[f"brier_{state}"], row[f"slope_{state}"]
            cells.append(UNDEFINED if brier is None else f"{brier:.4f}")
            cells.append(UNDEFINED if slope is None else f"{slope[0]:.2f}")
            cells.append(percent(row[f"ece_{state}"]))
        before, after = cells[:3], cells[3:]
        table.add_row(Text(row["class"]), *(cell for pair in zip(before, after) for cell in pair))
    left = [f"{row['class']} ({row['why_not_fitted']})" for row in rows if row["why_not_fitted"]]
    table.caption = Text(f"not calibrated: {'; '.join(left)}") if left else _where(stored)
    return table


def _with_interval(rate: Mapping[str, Any] | None) -> str:
    if rate is None or rate["value"] is None:
        return UNDEFINED
    return f"{percent(rate['value'])} [{percent(rate['low'])}, {percent(rate['high'])}]"


def _where(stored: Mapping[str, Any]) -> Text:
    if stored["fitted_on"] is None:
        return Text("given by hand")
    return Text(f"fitted on the {stored['fitted_on']} part, after round {stored['round']}")
