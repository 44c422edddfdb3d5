"""A reproduced table as plain data: our numbers, the paper's, and their rank correlation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedquilt.recipes.papers.criterion import Runs
from fedquilt.recipes.papers.published_numbers import AVERAGE
from fedquilt.recipes.papers.table import PublishedTable, Row
from fedquilt.reports.style import deviation_or_none, mean_or_none
from fedquilt.runs.reproduction import CellRun

RowSummary = Mapping[str, Any]  # what _row returns
Finished = Sequence[tuple[CellRun, Mapping[str, Any]]]  # runs with their results
Values = dict[str, dict[int, dict[str, float | None]]]  # column -> seed -> metric -> percent
MIN_METHODS = 3  # the rank correlation of two values is always 1 or -1


def reproduced(table: PublishedTable, runs: Sequence[CellRun]) -> dict[str, Any]:
    """Summarise the finished runs of a table; all numbers are in percent."""
    finished = [(run, run.result) for run in runs if run.is_finished]
    rows = [
        _row(table, row, own)
        for row in table.rows
        if (own := [each for each in finished if each[0].cell.row == row])
    ]
    ran = {run.cell.column.name for run, _ in finished}
    return {
        "table": table.name,
        "title": table.title,
        "data": table.choice.name,
        "rounds": sorted({result["rounds"] for _, result in finished}),
        "columns": {each.name: each.label for each in table.choice.columns if each.name in ran},
        "metrics": {metric.name: metric.label for metric in table.metrics},
        "references": {each.label: each.same_data for each in table.choice.references},
        "rows": rows,
        "criterion": _verdict(table, rows),
        "rank_agreement": _rank_agreement(table, rows),
        "remarks": list(table.remarks),
        "environments": _distinct([result["environment"] for _, result in finished]),
    }


def _row(table: PublishedTable, row: Row, finished: Finished) -> dict[str, Any]:
    """Summarise one method over the columns and seeds that have run."""
    values: Values = {}
    for run, result in finished:
        percents = {each.name: _percent(each.read(result)) for each in table.metrics}
        values.setdefault(run.cell.column.name, {})[run.seed] = percents
    if len(values) == len(table.choice.columns) > 1 and (average := _average(values)):
        values[AVERAGE] = average
    return {
        "row": row.name,
        "place": table.rows.index(row),
        "label": row.label,
        "kind": row.kind,
        "seeds": sorted({run.seed for run, _ in finished}),
        "seconds_per_run": _seconds(finished),
        "runs": {column: _runs(finished, column, [*values[column]]) for column in values},
        "columns": {
            column: {
                metric.name: _summary([each[metric.name] for each in by_seed.values()])
                | {"published": _published(table, row.name, column, metric.name)}
                for metric in table.metrics
            }
            for column, by_seed in values.items()
        },
    }


def _seconds(finished: Finished) -> float | None:
    return mean_or_none(result["seconds"] for _, result in finished)


def _runs(finished: Finished, column: str, seeds: list[int]) -> dict[str, Any]:
    """Return the seeds behind a column's numbers, which may differ between columns."""
    own = [
        (run, result)
        for run, result in finished
        if column in (run.cell.column.name, AVERAGE) and run.seed in seeds
    ]
    return {"seeds": seeds, "seconds_per_run": _seconds(own)}


def _average(values: Values) -> dict[int, dict[str, float | None]]:
    """Average over the columns for each seed, so that its deviation is over seeds too.

    Only seeds that have run in all columns count; there may be none.
    """
    cells = list(values.values())
    seeds = [seed for seed in cells[0] if all(seed in cell for cell in cells)]
    return {
        seed: {
            metric: mean_or_none(cell[seed][metric] for cell in cells) for metric in cells[0][seed]
        }
        for seed in seeds
    }


def _summary(values: list[float | None]) -> dict[str, Any]:
    mean, deviation = mean_or_none(values), deviation_or_none(values)
    return {"mean": mean, "deviation": deviation, "values": values}


def _published(table: PublishedTable, row: str, column: str, metric: str) -> dict[str, Any]:
    return {each.label: each.value(row, column, metric) for each in table.choice.references}


def _percent(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 4)


def _verdict(table: PublishedTable, rows: Sequence[RowSummary]) -> dict[str, Any]:
    criterion, labels = table.criterion, table.labels
    verdict = criterion.judge(_rivals(table, rows), labels)
    return {
        "method": labels[criterion.row],
        "words": criterion.words(labels),
        "holds": verdict.holds,
        "found": verdict.found,
    }


def _rivals(table: PublishedTable, rows: Sequence[RowSummary]) -> Runs:
    """Return the defined values of all rivals, by metric, row, column and seed."""
    found: dict[str, dict[str, dict[str, dict[int, float]]]] = {}
    for metric in table.metrics:
        of_metric = found.setdefault(metric.name, {})
        for row in rows:
            for column, numbers in row["columns"].items():
                if row["kind"] == "rival" and column != AVERAGE:
                    seeds = zip(row["runs"][column]["seeds"], numbers[metric.name]["values"])
                    if defined := {seed: value for seed, value in seeds if value is not None}:
                        of_metric.setdefault(row["row"], {})[column] = defined
    return found


def _rank_agreement(table: PublishedTable, rows: Sequence[RowSummary]) -> list[dict[str, Any]]:
    """Correlate our ranking with the paper's for each of its data sets, metrics and columns."""
    columns = [*(column.name for column in table.choice.columns), AVERAGE]
    found = []
    for reference in table.choice.references:
        for metric in table.metrics:
            for column in columns:
                pairs = _pairs(rows, reference.label, metric.name, column)
                place = {"reference": reference.label, "metric": metric.name, "column": column}
                rho = spearman([a for a, _ in pairs], [b for _, b in pairs])
                if rho is not None:
                    found.append({**place, "methods": len(pairs), "spearman": round(rho, 4)})
    return found


def _pairs(
    rows: Sequence[RowSummary], reference: str, metric: str, column: str
) -> list[tuple[float, float]]:
    """Return the paper's number and ours for each rival that has both."""
    cells = [
        row["columns"][column]
        for row in rows
        if row["kind"] == "rival" and column in row["columns"]
    ]
    pairs = [(cell[metric]["published"][reference], cell[metric]["mean"]) for cell in cells]
    return [pair for pair in pairs if None not in pair]


def spearman(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Return the rank correlation; None for fewer than three values, or if all are equal."""
    if len(one) < MIN_METHODS:
        return None
    ranks = (_centred_ranks(one), _centred_ranks(other))
    lengths = [math.sqrt(sum(rank * rank for rank in each)) for each in ranks]
    if min(lengths) == 0:
        return None
    return sum(a * b for a, b in zip(*ranks, strict=True)) / (lengths[0] * lengths[1])


def _centred_ranks(values: Sequence[float]) -> list[float]:
    """Return ranks minus their mean; equal values share the mean of their ranks."""
    middle = (len(values) + 1) / 2
    return [
        sum(other < value for other in values)
        + (sum(other == value for other in values) + 1) / 2
        - middle
        for value in values
    ]


def _distinct(environments: list[Any]) -> list[Any]:
    return [each for place, each in enumerate(environments) if each not in environments[:place]]
