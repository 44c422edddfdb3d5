"""Thresholds and calibration of a model, as tables: what was fitted, and its quality."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from fedquilt.core.shown_text import named_few
from fedquilt.reports.best_and_worst import fill
from fedquilt.reports.style import UNDEFINED, percent
from fedquilt.reports.tables import ALL_CLASSES, Rows, new_table


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
        if row["why_not_fitted"]:
            reasons.setdefault(row["why_not_fitted"], []).append(row["class"])

    def cells(row: Mapping[str, Any]) -> list[str | Text]:
        shown = [
            cell
            for kind in ("sensitivity", "specificity")
            for cell in (percent(row["promised"][kind]), _with_interval(row[kind]))
        ]
        mark = " *" if row["why_not_fitted"] else ""
        return [
            Text(row["class"]), Text(row["rule"]), f"{percent(row['threshold'])}{mark}", *shown
        ]  # fmt: skip

    fill(table, rows, cells, _sensitivity, ALL_CLASSES)
    lines = [f"* not fitted for {named_few(names)}: {why}" for why, names in reasons.items()]
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

    def cells(row: Mapping[str, Any]) -> list[str | Text]:
        numbers = []
        for state in ("raw", "calibrated"):
            brier, slope = row[f"brier_{state}"], row[f"slope_{state}"]
            numbers.append(UNDEFINED if brier is None else f"{brier:.4f}")
            numbers.append(UNDEFINED if slope is None else f"{slope[0]:.2f}")
            numbers.append(percent(row[f"ece_{state}"]))
        before, after = numbers[:3], numbers[3:]
        return [Text(row["class"]), *(cell for pair in zip(before, after) for cell in pair)]

    fill(table, rows, cells, _calibrated_error, ALL_CLASSES)
    left = [f"{row['class']} ({row['why_not_fitted']})" for row in rows if row["why_not_fitted"]]
    table.caption = Text(f"not calibrated: {named_few(left)}") if left else _where(stored)
    return table


def _sensitivity(row: Mapping[str, Any]) -> float | None:
    rate = row["sensitivity"]
    return None if rate is None else rate["value"]


def _calibrated_error(row: Mapping[str, Any]) -> float | None:
    """The best calibrated come first: their error is the smallest."""
    error = row["ece_calibrated"]
    return None if error is None else -error


def _with_interval(rate: Mapping[str, Any] | None) -> str:
    if rate is None or rate["value"] is None:
        return UNDEFINED
    return f"{percent(rate['value'])} [{percent(rate['low'])}, {percent(rate['high'])}]"


def _where(stored: Mapping[str, Any]) -> Text:
    if stored["fitted_on"] is None:
        return Text("given by hand")
    return Text(f"fitted on the {stored['fitted_on']} part, after round {stored['round']}")
