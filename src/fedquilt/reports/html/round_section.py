"""Sections on the rounds of training: curves, and the quality of pseudo-labels."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from fedquilt.reports.html.charts import Line, LineChart, line_chart
from fedquilt.reports.html.findings import CHANCE
from fedquilt.reports.html.formatting import count, named, percent, size
from fedquilt.reports.html.run_files import RunFiles

METRICS = (("macro_auc", "macro-AUC", "one"), ("map", "macro-AP", "two"))
MAX_CLASSES = 100  # in the table of pseudo-labels
MAX_TRAFFIC = 8  # rounds in the table of bytes


def round_section(run: RunFiles, served: int | None) -> dict[str, Any]:
    """Return charts of the metrics and of the losses over rounds.

    A run with a validation part is tested once, at the end; its curves are of validation.
    """
    validated = [each for each in run.history if "validation" in each]
    evaluated = [each for each in run.history if each.get("metrics")]
    if validated:
        metrics = line_chart(
            "Validation images (%)",
            [each["round"] for each in validated],
            [Line("AUC within sites", "one", _column(validated, "validation", "site_auc"))],
            scale=100,
            marked=served,
            reference=CHANCE,
        )
    else:
        metrics = line_chart(
            "Test images (%)",
            [each["round"] for each in evaluated],
            [Line(label, style, _column(evaluated, "metrics", k)) for k, label, style in METRICS],
            scale=100,
            marked=served,
            reference=CHANCE,
        )
    return {
        "charts": [each for each in (metrics, _loss_chart(run, served)) if each is not None],
        "traffic": _traffic(run),
        "rounds": len(run.history),
        "evaluated": len(validated or evaluated),
        "is_validated": bool(validated),
        "served": served,
        "why": run.result.get("served", {}).get("why"),
    }


def _traffic(run: RunFiles) -> list[dict[str, str]]:
    """Return what clients had sent and received in all when the model was judged."""
    up, down, rows = 0, 0, []
    for record in run.history:
        up, down = up + record.get("bytes_up", 0), down + record.get("bytes_down", 0)
        validated, tested = record.get("validation"), record.get("metrics")
        if up and (judged := validated or tested):
            auc = judged.get("site_auc" if validated else "macro_auc")
            facts = {"round": count(record["round"]), "up": size(up), "down": size(down)}
            rows.append({**facts, "auc": percent(auc)})
    step = max(1, math.ceil(len(rows) / MAX_TRAFFIC))
    return rows[::-1][::step][::-1]  # the last round is always shown


def _column(records: Sequence[Mapping[str, Any]], table: str, key: str) -> tuple[Any, ...]:
    return tuple(each[table].get(key) for each in records)


def _loss_chart(run: RunFiles, served: int | None) -> LineChart | None:
    rounds = [each["round"] for each in run.history]
    training = tuple(_finite(each.get("loss")) for each in run.history)
    lines = [Line("training loss", "three", training)]
    validation = tuple(each.get("validation", {}).get("loss") for each in run.history)
    if any(each is not None for each in validation):
        lines.append(Line("validation loss", "two", validation))
    return line_chart("Loss", rounds, lines, digits=3, marked=served)


def _finite(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def pseudo_label_section(run: RunFiles, served: int | None) -> dict[str, Any]:
    """Return how many pseudo-labels there were, and how many were right, over rounds."""
    records = [each for each in run.history if each.get("pseudo_labels")]
    if not records:
        return {"rows": []}
    rounds = [each["round"] for each in records]
    lines = [
        Line(label, style, tuple(_mean(each["pseudo_labels"], key) for each in records))
        for key, label, style in (
            ("positive_precision", "correct among those set to present", "one"),
            ("negative_precision", "correct among those set to absent", "two"),
        )
    ]
    chart = line_chart("Mean over classes (%)", rounds, lines, scale=100, marked=served)
    last = records[-1]
    classes: Mapping[str, Mapping[str, Any]] = last["pseudo_labels"]
    return {
        "chart": chart,
        "round": last["round"],
        "rows": [_pseudo_row(name, each) for name, each in list(classes.items())[:MAX_CLASSES]],
        "omitted": max(0, len(classes) - MAX_CLASSES),
        "is_empty": all(each["positives"] + each["negatives"] == 0 for each in classes.values()),
    }


def _mean(classes: Mapping[str, Mapping[str, Any]], key: str) -> float | None:
    values: Sequence[float] = [each[key] for each in classes.values() if each[key] is not None]
    return statistics.fmean(values) if values else None


def _pseudo_row(name: str, found: Mapping[str, Any]) -> dict[str, Any]:
    keys = ("positive_precision", "positive_recall", "negative_precision", "negative_recall")
    return {
        "name": named(name),
        "present": count(found["positives"]),
        "absent": count(found["negatives"]),
        "shares": [percent(found[key]) for key in keys],
    }
