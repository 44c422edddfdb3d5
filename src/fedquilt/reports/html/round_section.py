"""Sections on the rounds of training: curves, and the quality of pseudo-labels."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from fedquilt.reports.html.charts import Line, LineChart, line_chart
from fedquilt.reports.html.findings import CHANCE
from fedquilt.reports.html.run_files import RunFiles
from fedquilt.reports.html.shown_text import count, named, percent

METRICS = (("macro_auc", "macro-AUC", "one"), ("map", "macro-AP", "two"))
MAX_CLASSES = 100  # in the table of pseudo-labels


def round_section(run: RunFiles, served: int) -> dict[str, Any]:
    """Return charts of the metrics and of the training loss over rounds."""
    records = [each for each in run.history if each.get("metrics")]
    rounds = [each["round"] for each in records]
    lines = [
        Line(label, style, tuple(each["metrics"].get(name) for each in records))
        for name, label, style in METRICS
    ]
    metrics = line_chart(
        "Test images (%)", rounds, lines, scale=100, marked=served, reference=CHANCE
    )
    return {
        "charts": [each for each in (metrics, _loss_chart(run, served)) if each is not None],
        "rounds": len(run.history),
        "evaluated": len(records),
        "served": served,
    }


def _loss_chart(run: RunFiles, served: int) -> LineChart | None:
    losses = tuple(_finite(each.get("loss")) for each in run.history)
    rounds = [each["round"] for each in run.history]
    lines = [Line("training loss", "three", losses)]
    return line_chart("Training loss", rounds, lines, digits=3, marked=served)


def _finite(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def pseudo_label_section(run: RunFiles, served: int) -> dict[str, Any]:
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
