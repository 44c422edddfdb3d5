"""Rounds that a run takes to a level of a metric, FLAG's measure of speed, per method."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from fedquilt.core.errors import UserError, nearest
from fedquilt.reports.comparison import SHORT_NAMES, group_by_recipe, labels_of
from fedquilt.reports.style import UNDEFINED, percent, title
from fedquilt.reports.tables import new_table

if TYPE_CHECKING:
    from fedquilt.runs.finished_run import Run


def rounds_to(history: Iterable[Mapping[str, Any]], metric: str, level: float) -> int | None:
    """Return the first evaluated round, counted from 1, that reaches ``level``; None if none does.

    A round that was not evaluated cannot count, so the answer is as fine as ``evaluation.every``.
    """
    for number, record in enumerate(history, start=1):
        value = record.get("metrics", {}).get(metric)
        if value is not None and value >= level:
            return number
    return None


def convergence(runs: Sequence[Run], wanted: str) -> dict[str, Any]:
    """Return the rounds of every run to ``wanted``, METRIC=LEVEL with a level in 0..1."""
    metric, level = _parsed(wanted, runs[0].result["metrics"])
    groups = group_by_recipe(runs)
    rows = []
    for label, members in zip(labels_of([each[0] for each in groups]), groups):
        found = [rounds_to(run.history, metric, level) for run in members]
        reached = [each for each in found if each is not None]
        rows.append(
            {
                "label": label,
                "seeds": [run.settings["seed"] for run in members],
                "rounds": found,
                "median": statistics.median(reached) if len(reached) == len(found) else None,
                "trained": max(len(run.history) for run in members),
                "every": max(run.evaluation.every for run in members),
            }
        )
    return {"metric": metric, "level": level, "groups": rows}


def _parsed(wanted: str, known: Mapping[str, Any]) -> tuple[str, float]:
    name, _, text = wanted.partition("=")
    metric = SHORT_NAMES.get(name, name)
    if metric not in known:
        raise UserError(f"--rounds-to: unknown metric {name!r}{nearest(name, known)}")
    try:
        level = float(text)
    except ValueError:
        level = -1.0
    if not 0 <= level <= 1:
        raise UserError(
            f"--rounds-to needs METRIC=LEVEL with a level in 0..1, such as map=0.7; found "
            f"{wanted!r}"
        )
    return metric, level


def convergence_table(found: Mapping[str, Any]) -> Table:
    table = new_table(
        f"Rounds to {percent(found['level'])} % of {title(found['metric'])}", "method"
    )
    table.add_column("median", justify="right")
    table.add_column("by seed", justify="right")
    table.add_column("rounds trained", justify="right")
    for group in found["groups"]:
        by_seed = ", ".join(UNDEFINED if each is None else str(each) for each in group["rounds"])
        median = UNDEFINED if group["median"] is None else f"{group['median']:g}"
        table.add_row(Text(group["label"]), median, by_seed, str(group["trained"]))
    every = max(group["every"] for group in found["groups"])
    step = "every round" if every == 1 else f"every {every} rounds"
    table.caption = f"{UNDEFINED}: not reached; evaluated {step}"
    return table
