"""The output at the end of a run: metrics, files and next commands."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.text import Text

from fedquilt.cli.console import results
from fedquilt.core.wording import counted
from fedquilt.reports.decision_tables import (
    calibration_rows,
    calibration_table,
    threshold_rows,
    threshold_table,
)
from fedquilt.reports.site_table import site_rows, site_table
from fedquilt.reports.tables import (
    average_rows,
    average_table,
    class_rows,
    class_table,
    decision_table,
    shown_intervals,
    status_rows,
    status_table,
)

if TYPE_CHECKING:
    from fedquilt.runs.finished_run import Run


def show_result(run: Run) -> None:
    result, clients = run.result, len(run.allocation.holdings)
    intervals = shown_intervals(result)
    rows = class_rows(result["reports"], run.annotators, intervals)
    results.print()
    averages = result["metrics"]
    results.print(class_table(rows, averages, client_count=clients, intervals=intervals))
    if intervals is not None and "sensitivity" in intervals["per_class"]:
        results.print(decision_table(rows))
    results.print(average_table(average_rows(result["metrics"], result["spread_over_clients"])))
    results.print(status_table(status_rows(result["annotation_status"])))
    if "by_site" in result:
        results.print(site_table(site_rows(result["by_site"]), result["by_site"]["model"]))
    for sentence in result.get("idle", ()):
        results.print(Text.assemble(("warning: ", "yellow"), sentence), soft_wrap=True)
    for name, quality in result.get("decisions", {}).items():
        if name == "global":  # of clients' own models result.json has all
            show_decisions(run.decisions(None), quality)
    sent = result["bytes_up"] / 1e6
    rounds = counted(result["rounds"], "round")
    results.print(Text(f"{rounds} in {result['seconds']:.0f} s; clients sent {sent:.1f} MB"))
    if result.get("served", {}).get("model") == "best":
        results.print(Text(f"model: {result['served']['why']}"), soft_wrap=True)
    _show_files(run)
    _show_next_commands(run)


def show_decisions(stored: Mapping[str, Any], quality: Mapping[str, Any]) -> None:
    """Show thresholds and calibration, and their quality on the evaluated images."""
    if "thresholds" in stored:
        of_classes = threshold_rows(stored["thresholds"], quality["thresholds"])
        results.print(threshold_table(of_classes, stored["thresholds"]))
    if "calibration" in stored:
        of_classes = calibration_rows(stored["calibration"], quality["calibration"])
        results.print(calibration_table(of_classes, stored["calibration"]))


def _show_files(run: Run) -> None:
    weights = "models/" if run.models.clients else "model.safetensors"
    files = {
        "result.json": "all numbers",
        "history.jsonl": "one line per round",
        weights: "the weights, described in model.json",
        "pictures/": "curves and the annotation map",
        "report.html": "all of it as one page, to read and to send",
        "recipe.json": "the recipe, which `fedquilt run` can run again",
    }
    results.print(Text(f"\nAll files are in {run.path}:"))
    for name, meaning in files.items():
        results.print(Text(f"  {name:<18} {meaning}"))


def _show_next_commands(run: Run) -> None:
    folder = shlex.quote(str(run.path))
    client = f" --client {shlex.quote(run.models.clients[0])}" if run.models.clients else ""
    results.print(Text("\nNext:"))
    for command in (
        f"predict {folder} IMAGE...{client}",
        f"evaluate {folder} --data FOLDER --labels CSV",
        f"compare {folder} OTHER_RUN...",
    ):
        results.print(Text(f"  fedquilt {command}"), soft_wrap=True)
