"""Picture of a comparison: a metric over rounds, and every class after the last round."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedquilt.reports.best_and_worst import Ends, best_and_worst
from fedquilt.reports.comparison import group_by_recipe
from fedquilt.reports.style import (
    line_style,
    new_figure,
    picture_style,
    prepare_round_axes,
    save,
    title,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fedquilt.runs.finished_run import Run

MARKERS = "osD^vP"


def save_comparison_picture(runs: Sequence[Run], comparison: Mapping[str, Any], path: Path) -> None:
    """Draw the first metric over rounds with its range over seeds, and beside it every class."""
    groups, metric = comparison["groups"], comparison["metrics"][0]
    ends = best_and_worst([*groups[0]["classes"]], lambda name: _range(groups, name))
    with picture_style():
        figure = new_figure(10, max(3.8, 1.2 + 0.24 * len(ends.shown)))
        over_rounds, by_class = figure.subplots(1, 2, width_ratios=[3, 2])
        is_validated = any("validation" in record for run in runs for record in run.history)
        what = "AUC within sites, validation" if is_validated else title(metric)
        prepare_round_axes(over_rounds, f"{what}, over rounds (%)")
        drawn = None if is_validated else metric
        for position, (group, members) in enumerate(zip(groups, group_by_recipe(runs))):
            _draw_over_rounds(over_rounds, members, drawn, position, group["label"])
        _draw_classes(by_class, groups, comparison["class_metric"], ends)
        handles = over_rounds.get_legend_handles_labels()
        figure.legend(*handles, loc="outside lower left", ncols=min(3, len(groups)))
        save(figure, path)


def _draw_over_rounds(
    axes: Axes, runs: Sequence[Run], metric: str | None, position: int, label: str
) -> None:
    values: dict[int, list[float]] = {}
    for run in runs:
        for record in run.history:
            found = _value(record, metric)
            if found is not None:
                values.setdefault(record["round"], []).append(100 * found)
    rounds = sorted(values)
    look = line_style(position, len(rounds))
    look |= {"marker": _marker(position), "markersize": 4, "markevery": max(1, len(rounds) // 8)}
    axes.plot(rounds, [statistics.fmean(values[r]) for r in rounds], label=label, **look)
    if len(runs) > 1:
        low, high = [min(values[r]) for r in rounds], [max(values[r]) for r in rounds]
        axes.fill_between(rounds, low, high, color=look["color"], alpha=0.15, linewidth=0)


def _value(record: Mapping[str, Any], metric: str | None) -> float | None:
    """A metric of the test images or, without its name, the AUC on validation images."""
    if metric is None:
        found: float | None = record.get("validation", {}).get("site_auc")
        return found
    return (record["metrics"] or {}).get(metric)


def _range(groups: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """How far the methods are apart in a class; of many classes the largest and smallest."""
    means = [group["classes"].get(name, {}).get("mean") for group in groups]
    defined = [mean for mean in means if mean is not None]
    return max(defined) - min(defined) if defined else None


def _draw_classes(
    axes: Axes, groups: Sequence[Mapping[str, Any]], metric: str, ends: Ends[str]
) -> None:
    names = ends.shown
    axes.grid(visible=True)
    some = "\nwhere methods differ most and least" if ends.omitted else ""
    axes.set_title(f"{title(metric)} per class at the end (%){some}")
    for position, group in enumerate(groups):
        means = [group["classes"].get(name, {}).get("mean") for name in names]
        points = [(100 * mean, row) for row, mean in enumerate(means) if mean is not None]
        axes.plot(
            [value for value, _ in points],
            [row for _, row in points],
            linestyle="",
            marker=_marker(position),
            markersize=5,
            alpha=0.85,
            color=line_style(position, 0)["color"],
        )
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)


def _marker(position: int) -> str:
    return MARKERS[position % len(MARKERS)]
