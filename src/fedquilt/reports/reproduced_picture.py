"""Picture of a reproduced table: one panel per metric, one line per method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedquilt.reports.style import (
    MEAN_COLOUR,
    MUTED_COLOUR,
    line_style,
    new_figure,
    picture_style,
    save,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_PANELS_ACROSS = 3
MARKERS = "osD^vPX*<>hp"
OURS, PAPER = (line_style(position, 0)["color"] for position in (0, 1))

Points = tuple[list[int], list[float]]


def save_reproduced_picture(summary: Mapping[str, Any], path: Path) -> None:
    """Draw metrics over columns or, for a table with one column, a list of methods.

    If the data are the paper's, its numbers are drawn as dashed lines or hollow markers.
    """
    metrics = [*summary["metrics"]]
    is_series = len(summary["columns"]) > 1
    down = -(-len(metrics) // MAX_PANELS_ACROSS)
    across = -(-len(metrics) // down)  # four panels are two by two, not three and one
    height = 3.4 if is_series else 1.2 + 0.26 * len(summary["rows"])
    with picture_style():
        figure = new_figure(3.6 * across + 0.6, height * down + 0.8)
        panels: Any = figure.subplots(down, across, squeeze=False)
        for place, axes in enumerate(panels.flat):
            if place >= len(metrics):
                axes.set_axis_off()
                continue
            axes.set_title(f"{summary['metrics'][metrics[place]]} (%)")
            axes.grid(visible=True)
            (_draw_series if is_series else _draw_list)(axes, summary, metrics[place])
        figure.suptitle(f"{summary['table']} on {summary['data']}", x=0.01, ha="left")
        handles = panels[0, 0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside lower left", ncols=min(5, len(handles[0])))
        save(figure, path)


def _draw_series(axes: Axes, summary: Mapping[str, Any], metric: str) -> None:
    columns = summary["columns"]
    for row in summary["rows"]:
        position = row["place"]  # in the full table: a method looks the same in all pictures
        cells = [row["columns"].get(column, {}).get(metric, {}) for column in columns]
        is_own = row["label"] == summary["criterion"]["method"]
        # Colours repeat, markers do not; the paper's own method is black.
        colour = MEAN_COLOUR if is_own else line_style(position, 0)["color"]
        look: dict[str, Any] = {"color": colour, "marker": MARKERS[position % len(MARKERS)]}
        means = _points([cell.get("mean") for cell in cells])
        width = 2.4 if is_own else 1.2
        axes.plot(*means, **look, markersize=5, linewidth=width, label=row["label"])
        axes.plot(*_seeds(cells), ".", color=colour, markersize=3)
        for reference in _comparable(summary):
            published = _points([cell.get("published", {}).get(reference) for cell in cells])
            axes.plot(*published, color=colour, linestyle="--", alpha=0.5)
    if _comparable(summary):
        axes.plot([], [], color=MUTED_COLOUR, linestyle="--", label="dashed: the paper")
    axes.set_xticks(range(len(columns)), list(columns.values()))


def _draw_list(axes: Axes, summary: Mapping[str, Any], metric: str) -> None:
    (column,) = summary["columns"]
    cells = [row["columns"][column][metric] for row in summary["rows"]]
    places, values = _seeds(cells)
    axes.plot(values, places, ".", color=OURS, alpha=0.6, markersize=4)
    places, values = _points([cell["mean"] for cell in cells])
    axes.plot(values, places, "o", color=OURS, label="ours, mean and seeds")
    for reference in _comparable(summary):
        places, values = _points([cell["published"][reference] for cell in cells])
        axes.plot(values, places, "D", color=PAPER, markerfacecolor="none", label="the paper")
    axes.set_yticks(range(len(cells)), [row["label"] for row in summary["rows"]])
    axes.set_ylim(len(cells) - 0.5, -0.5)


def _comparable(summary: Mapping[str, Any]) -> list[str]:
    return [label for label, same_data in summary["references"].items() if same_data]


def _points(values: Sequence[float | None]) -> Points:
    """Return positions and values, without missing ones."""
    found = [(place, value) for place, value in enumerate(values) if value is not None]
    return [place for place, _ in found], [value for _, value in found]


def _seeds(cells: Sequence[Mapping[str, Any]]) -> Points:
    """Return every seed's value at the position of its cell."""
    found = [
        (place, value)
        for place, cell in enumerate(cells)
        for value in cell.get("values", ())
        if value is not None
    ]
    return [place for place, _ in found], [value for _, value in found]
