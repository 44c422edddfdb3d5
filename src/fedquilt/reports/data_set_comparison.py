"""Methods ranked over several data sets: Friedman's test, and Nemenyi's critical difference."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from fedquilt.core.errors import UserError
from fedquilt.metrics.across_data_sets import friedman
from fedquilt.reports.comparison import SEEDS, SHORT_NAMES, flat_settings
from fedquilt.reports.style import (
    SMALLER_IS_BETTER,
    UNDEFINED,
    mean_or_none,
    new_figure,
    percent,
    picture_style,
    save,
    title,
)
from fedquilt.reports.tables import new_table

if TYPE_CHECKING:
    from fedquilt.runs.finished_run import Run

MIN_DATA_SETS = 5  # with fewer, ranks cannot tell methods apart, and no picture is drawn
SIGNIFICANT = 0.05


def compare_over_data_sets(runs: Sequence[Run], metric: str = "macro_auc") -> dict[str, Any]:
    """Rank the methods on every data set, and test whether their mean ranks differ."""
    metric, data_sets = SHORT_NAMES.get(metric, metric), _data_sets(runs)
    methods = _methods(runs, data_sets)
    values: dict[tuple[str, str], list[float | None]] = {}
    for run, method, data_set in zip(runs, methods, data_sets):
        if metric not in run.result["metrics"]:
            raise UserError(f"{run.path} has no metric {metric!r}")
        values.setdefault((data_set, method), []).append(run.result["metrics"][metric])
    names, rivals = list(dict.fromkeys(data_sets)), list(dict.fromkeys(methods))
    table = {
        name: {rival: mean_or_none(values.get((name, rival), ())) for rival in rivals}
        for name in names
    }
    holes = [f"{m} on {d}" for d in names for m in rivals if table[d][m] is None]
    if len(names) < 2 or len(rivals) < 2:
        raise UserError(
            f"found {len(names)} data set(s) and {len(rivals)} method(s); to rank methods over "
            "data sets give runs of two or more of each"
        )
    if holes:
        raise UserError(
            f"every method must have run on every data set; there is no {metric} of "
            f"{', '.join(holes[:5])}"
        )
    sign = -1 if metric in SMALLER_IS_BETTER else 1
    found = friedman([[sign * (table[d][m] or 0.0) for m in rivals] for d in names])
    nemenyi = found.nemenyi.tolist()
    return {
        "metric": metric,
        "data_sets": table,
        "mean_ranks": dict(zip(rivals, found.mean_ranks)),
        "friedman": {"chi2": found.chi2, "p": found.p},
        "iman_davenport": {"f": None if found.f_p == 0 else found.f, "p": found.f_p},
        "critical_difference": found.critical_difference,
        "nemenyi": {
            one: {other: p for other, p in zip(rivals, row) if other != one}
            for one, row in zip(rivals, nemenyi)
        },
        "words": _words(found.f_p, len(names)),
    }


def _words(p: float, count: int) -> str:
    if count < MIN_DATA_SETS:
        return (
            f"too few to tell: {count} data sets, at least {MIN_DATA_SETS} are needed before mean "
            "ranks say anything"
        )
    if p >= SIGNIFICANT:
        return f"no significant difference between the methods over {count} data sets (p {p:.2g})"
    return (
        f"the methods differ over {count} data sets (p {p:.2g}): two of them where their mean "
        "ranks are further apart than the critical difference"
    )


def _methods(runs: Sequence[Run], data_sets: Sequence[str]) -> list[str]:
    """Name every run's method, with the settings in which it differs on one data set."""
    settings = [flat_settings(run.settings) for run in runs]
    names = []
    for own, data_set in zip(settings, data_sets):
        rivals = [
            other
            for other, place in zip(settings, data_sets)
            if place == data_set and other["method.name"] == own["method.name"]
        ]
        differing = [
            f"{place.removeprefix('method.')}={own.get(place)}"
            for place in sorted(set().union(*rivals))
            if place.startswith("method.") and len({repr(each.get(place)) for each in rivals}) > 1
        ]
        names.append(" ".join([str(own["method.name"]), *differing]))
    return names


def _data_sets(runs: Sequence[Run]) -> list[str]:
    """Name every run's data set; equal names of different settings are numbered."""
    numbers: dict[str, dict[str, int]] = {}
    names = []
    for run in runs:
        flat = flat_settings(run.settings)
        settings = {
            place: value
            for place, value in flat.items()
            if place.startswith("data.") and place not in SEEDS
        }
        known = numbers.setdefault(str(flat["data.name"]), {})
        number = known.setdefault(json.dumps(settings, sort_keys=True), len(known) + 1)
        names.append(f"{flat['data.name']}{'' if number == 1 else f' ({number})'}")
    return names


def data_set_table(compared: Mapping[str, Any]) -> Table:
    """Format the values per data set and the mean ranks; 1 is the best rank."""
    ranks = compared["mean_ranks"]
    table = new_table(f"{title(compared['metric'])} by data set (%)", "data set")
    for name in ranks:
        table.add_column(Text(name), justify="right", overflow="fold")
    for name, row in compared["data_sets"].items():
        table.add_row(Text(name), *(percent(row[method]) for method in ranks))
    table.add_section()
    table.add_row("mean rank", *(f"{rank:.2f}" for rank in ranks.values()), style="bold")
    f = compared["iman_davenport"]["f"]
    table.caption = (
        f"critical difference {compared['critical_difference']:.2f} ranks (Nemenyi, 5 %); "
        f"Friedman chi2 {compared['friedman']['chi2']:.2f}, "
        f"F {UNDEFINED if f is None else format(f, '.2f')}"
    )
    return table


def save_rank_picture(compared: Mapping[str, Any], path: Path) -> None:
    """Draw the mean ranks, with a bar over methods that the critical difference cannot tell."""
    ranks = sorted(compared["mean_ranks"].items(), key=lambda pair: pair[1])
    gap = compared["critical_difference"]
    if len(compared["data_sets"]) < MIN_DATA_SETS:
        raise UserError(compared["words"])
    with picture_style():
        figure = new_figure(7, 1.4 + 0.3 * len(ranks))
        axes = figure.subplots()
        axes.set_title(f"Mean ranks over {len(compared['data_sets'])} data sets (1 is best)")
        axes.plot([rank for _, rank in ranks], range(len(ranks)), "o", color="#000000")
        for place, (_, rank) in enumerate(ranks):
            reach = max(k for k, (_, other) in enumerate(ranks) if other - rank <= gap)
            if reach > place:
                axes.plot([rank, ranks[reach][1]], [place - 0.25] * 2, color="#0072B2", lw=2.5)
        axes.set_yticks(range(len(ranks)), [name for name, _ in ranks])
        axes.set_ylim(len(ranks) - 0.5, -0.8)
        axes.set_xlim(0.8, len(ranks) + 0.2)
        axes.grid(visible=True, axis="x")
        axes.set_xlabel(f"mean rank; bars: not told apart (critical difference {gap:.2f})")
        save(figure, path)
