"""Result tables; for each, a function that returns plain rows and one that formats them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from fedquilt.reports.best_and_worst import fill
from fedquilt.reports.style import UNDEFINED, mean_or_none, percent, title

Rows = list[dict[str, Any]]

CLASS_METRICS = ("auc", "ap", "bacc")
DECISION_METRICS = ("sensitivity", "specificity", "ppv", "npv")
AVERAGES = ("macro_auc", "map", "bacc", "macro_f1", "micro_auc", "hamming", "subset_accuracy")
STATUS_AVERAGES = ("macro_auc", "map", "bacc", "macro_f1")
MAX_NAMED_ANNOTATORS = 3  # of more annotators only the number is shown
ALL_CLASSES = "in result.json"
MIN_POSITIVES = 10  # with fewer, the metrics of a class are mostly chance


def new_table(heading: str | None, first_column: str) -> Table:
    table = Table(title=heading, title_justify="left", caption_justify="left", box=box.SIMPLE_HEAD)
    table.add_column(first_column, overflow="fold")
    return table


def class_rows(
    reports: Mapping[str, Mapping[str, Any]],
    annotators: Mapping[str, Sequence[str]],
    intervals: Mapping[str, Any] | None = None,
) -> Rows:
    """Return one row per class: the mean over the models for which a metric is defined.

    ``intervals``, of :func:`shown_intervals`, adds the intervals and the numbers of patients.
    """
    first = next(iter(reports.values()))
    rows = []
    for place, name in enumerate(first["classes"]):
        metrics = {
            metric: mean_or_none(report["per_class"][metric][place] for report in reports.values())
            for metric in CLASS_METRICS
        }
        counts = {kind: int(first["per_class"][kind][place]) for kind in ("positives", "negatives")}
        row = {"class": name, **metrics, **counts, "annotators": annotators[name]}
        rows.append(row | _intervals_of(intervals, place))
    return rows


def shown_intervals(result: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the intervals of a result's global model, or of the mean over its clients' models.

    None for a run of an earlier version, which has none.
    """
    if "mean_intervals" in result:
        found: Mapping[str, Any] = result["mean_intervals"]
        return found
    return next(iter(result.get("intervals", {}).values()), None)


def _intervals_of(intervals: Mapping[str, Any] | None, place: int) -> dict[str, Any]:
    if intervals is None:
        return {}
    patients = {kind: intervals[kind][place] for kind in ("positive_patients", "negative_patients")}
    columns = intervals["per_class"]
    return patients | {
        "intervals": {
            metric: {field: each[field][place] for field in ("value", "low", "high")}
            for metric, each in columns.items()
        }
    }


def class_table(
    rows: Rows,
    averages: Mapping[str, Any],
    *,
    client_count: int,
    intervals: Mapping[str, Any] | None = None,
) -> Table:
    heading = "Result per class (%)" if intervals is None else "Result per class (%, 95 % interval)"
    table = new_table(heading, "class")
    for metric in CLASS_METRICS:
        table.add_column(title(metric), justify="right")
    table.add_column("test positives", justify="right")
    table.add_column("annotated by", overflow="fold")

    def cells(row: Mapping[str, Any]) -> list[str | Text]:
        few = row["positives"] < MIN_POSITIVES
        return [
            Text(row["class"]),
            *(with_interval(row[m], row.get("intervals", {}).get(m)) for m in CLASS_METRICS),
            f"{row['positives']:,}{' !' if few else ''}",
            Text(_annotators(row["annotators"], client_count)),
        ]

    fill(table, rows, cells, _judged_auc, ALL_CLASSES)
    table.add_section()
    macro = None if intervals is None else intervals["averages"]["macro_auc"]
    auc = with_interval(averages["macro_auc"], macro)
    table.add_row("mean", auc, percent(averages["map"]), percent(averages["bacc"]), "", "",
                  style="bold")  # fmt: skip
    if any(row["positives"] < MIN_POSITIVES for row in rows):
        table.caption = f"! fewer than {MIN_POSITIVES} positives: read these numbers with care"
    return table


def _judged_auc(row: Mapping[str, Any]) -> float | None:
    """The AUC by which the best and the worst classes are shown: not one of chance."""
    auc: float | None = row["auc"] if row["positives"] >= MIN_POSITIVES else None
    return auc


def with_interval(value: float | None, interval: Mapping[str, Any] | None) -> str:
    """Return "83.3 [52.7, 95.7]", the number alone, or a dash."""
    if value is None or interval is None or interval["low"] is None:
        return percent(value)
    return f"{percent(value)} [{percent(interval['low'])}, {percent(interval['high'])}]"


def decision_table(rows: Rows) -> Table:
    """Format sensitivity, specificity, PPV and NPV at the model's threshold, with intervals."""
    table = new_table("Decisions at the threshold (%, 95 % interval)", "class")
    for name in DECISION_METRICS:
        table.add_column(title(name), justify="right")
    table.add_column("test prevalence", justify="right")

    def cells(row: Mapping[str, Any]) -> list[str | Text]:
        known = row["positives"] + row["negatives"]
        found = [row["intervals"][name] for name in DECISION_METRICS]
        share = row["positives"] / known if known else None
        shown = (with_interval(each["value"], each) for each in found)
        return [Text(row["class"]), *shown, percent(share)]

    fill(table, rows, cells, _judged_auc, ALL_CLASSES)
    table.caption = "PPV and NPV hold at the prevalence of the annotated test images only"
    return table


def _annotators(names: Sequence[str], client_count: int) -> str:
    if len(names) == client_count > 1:
        return f"all {client_count} clients"
    if len(names) > MAX_NAMED_ANNOTATORS:
        return f"{len(names)} of {client_count} clients"
    return ", ".join(names) or "no client"


def average_rows(averages: Mapping[str, Any], spread: Mapping[str, Any] | None = None) -> Rows:
    """Return every average; ``deviation`` is over the clients' models, if there are several."""
    return [
        {"average": name, "value": value, "deviation": (spread or {}).get(name)}
        for name, value in averages.items()
    ]


def average_table(rows: Rows) -> Table:
    """Format the main averages; the rows hold the others too."""
    values = {row["average"]: row for row in rows}
    has_spread = any(row["deviation"] is not None for row in rows)
    table = new_table("Averages (%)", "")
    shown = [name for name in AVERAGES if name in values]
    for name in shown:
        table.add_column(title(name), justify="right")
    label = "clients' mean" if has_spread else "global model"
    table.add_row(label, *(percent(values[name]["value"]) for name in shown))
    if has_spread:
        table.add_row("deviation", *(percent(values[name]["deviation"]) for name in shown))
    return table


def status_rows(annotation_status: Mapping[str, Any]) -> Rows:
    """Return the metrics on classes that clients annotate and on those they do not."""
    return [
        {
            "classes": status,
            **{name: annotation_status["mean"][status][name] for name in STATUS_AVERAGES},
            "clients": max(annotation_status["client_count"][status].values()),
        }
        for status in ("annotated", "unannotated")
    ]


def status_table(rows: Rows) -> Table:
    table = new_table("By annotation status, mean over clients (%)", "classes that a client")
    for name in STATUS_AVERAGES:
        table.add_column(title(name), justify="right")
    table.add_column("clients", justify="right")
    words = {"annotated": "annotates", "unannotated": "does not annotate"}
    for row in rows:
        numbers = [percent(row[name]) for name in STATUS_AVERAGES]
        table.add_row(words[row["classes"]], *numbers, str(row["clients"] or UNDEFINED))
    return table
