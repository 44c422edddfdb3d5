"""Charts of figures: who holds what, features in a plane, cosines, classes by annotators."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from fedquilt.reports.annotation_picture import short
from fedquilt.reports.style import COLOURS, FEW_POINTS, line_style, new_figure, picture_style, save
from fedquilt.reports.tables import new_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CELL = 0.42  # inches
MANY_CLASSES = 40  # no names and no numbers in the cells above it


def save_holdings(columns: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Draw a panel per setting: classes by clients, coloured by the client's share of the class."""
    first = next(iter(columns.values()))
    width, height = len(first["clients"]) * CELL + 1.6, len(first["classes"]) * CELL + 1.2
    with picture_style():
        figure = new_figure(min(width * len(columns), 24), min(height, 14))
        panels: Any = figure.subplots(1, len(columns), squeeze=False)
        for axes, (label, counts) in zip(panels.flat, columns.items()):
            rows = [list(row) for row in zip(*counts["positives"])]  # classes by clients
            totals = [max(sum(row), 1) for row in rows]
            shares = [[value / total for value in row] for row, total in zip(rows, totals)]
            texts = [[short(value) if value else "" for value in row] for row in rows]
            _draw_cells(axes, shares, texts, counts["classes"], counts["clients"])
            axes.set_title(label)
            axes.set_xlabel("client; numbers: positives, colour: share of the class")
        save(figure, path)


def save_positives(counts: Mapping[str, Any], paper: Sequence[Sequence[float]], path: Path) -> None:
    """Draw clients by classes: our positives, and the paper's below them."""
    ours, names = counts["positives"], counts["classes"]
    most = max(max(row) for row in ours) or 1
    shades = [[value / most for value in row] for row in ours]
    texts = [
        [f"{a:,}\n{b:,.0f}" if a or b else "" for a, b in zip(our_row, their_row)]
        for our_row, their_row in zip(ours, paper)
    ]
    with picture_style():
        figure = new_figure(len(names) * 0.72 + 1.4, len(ours) * 0.52 + 1.6)
        axes = figure.subplots()
        _draw_cells(axes, shades, texts, [chr(ord("A") + n) for n in range(len(ours))], names)
        axes.set_title("annotated positives per client: ours above, the paper's below")
        save(figure, path)


def positives_table(counts: Mapping[str, Any], paper: Sequence[Sequence[float]]) -> Table:
    table = new_table("Annotated positives, ours / the paper's", "class")
    for number in range(len(counts["clients"])):
        table.add_column(chr(ord("A") + number), justify="right")
    for place, name in enumerate(counts["classes"]):
        cells = [
            f"{ours[place]:,}/{theirs[place]:,.0f}" if ours[place] or theirs[place] else ""
            for ours, theirs in zip(counts["positives"], paper)
        ]
        table.add_row(Text(name), *cells)
    return table


def save_by_annotators(points: Sequence[Mapping[str, Any]], label: str, path: Path) -> None:
    """Draw each class's metric against the number of clients that annotate it, and its means."""
    from matplotlib.ticker import MaxNLocator

    with picture_style():
        figure = new_figure(6.4, 4.2)
        axes = figure.subplots()
        for place, name in enumerate(dict.fromkeys(point["class"] for point in points)):
            own: dict[int, list[float]] = {}
            for point in points:
                if point["class"] == name and point["value"] is not None:
                    own.setdefault(point["annotators"], []).append(100 * point["value"])
            style, counts = line_style(place, FEW_POINTS + 1), sorted(own)
            axes.plot(counts, [statistics.fmean(own[n]) for n in counts], label=name, **style)
            spread = [(count, value) for count in counts for value in own[count]]
            xs, ys = zip(*spread) if spread else ((), ())
            axes.scatter(xs, ys, s=10, color=style["color"])
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(visible=True)
        axes.set_xlabel("clients that annotate the class")
        axes.set_ylabel(f"{label} (%)")
        figure.legend(loc="outside right upper")
        save(figure, path)


def save_cosines(
    matrices: Mapping[str, Mapping[str, Any]], names: Sequence[str], path: Path
) -> None:
    """Draw a matrix of cosines between class means for each method."""
    side = len(names) * 0.34 + 1.6
    with picture_style():
        figure = new_figure(side * len(matrices) + 0.6, side)
        panels: Any = figure.subplots(1, len(matrices), squeeze=False)
        for axes, (label, found) in zip(panels.flat, matrices.items()):
            shown = axes.imshow(found["matrix"], cmap="RdBu_r", vmin=-1, vmax=1)
            axes.set_xticks(range(len(names)), names, rotation=90)
            axes.set_yticks(range(len(names)), names)
            axes.set_title(f"{label}: mean {found['mean']:+.2f}")
            for spine in axes.spines.values():
                spine.set_visible(False)
        figure.colorbar(shown, ax=panels, fraction=0.03).set_label("cosine of class means")
        save(figure, path)


def save_planes(planes: Mapping[str, Mapping[str, Any]], names: Sequence[str], path: Path) -> None:
    """Draw a row per method: points coloured by class, and by the image's number of labels."""
    with picture_style():
        figure = new_figure(8.4, 3.6 * len(planes))
        panels: Any = figure.subplots(len(planes), 2, squeeze=False)
        for (by_class, by_count), (label, found) in zip(panels, planes.items()):
            by_class.set_title(f"{label}, by class")
            by_count.set_title("by number of labels")
            _scatter(by_class, found, found["class"], dict(enumerate(names)))
            counts = {count: str(count) for count in sorted(set(found["labels"]))}
            _scatter(by_count, found, found["labels"], counts)
        save(figure, path)


def _scatter(
    axes: Axes, found: Mapping[str, Any], group_of: Sequence[int], names: Mapping[int, str]
) -> None:
    import matplotlib

    colours = list(COLOURS) if len(names) <= len(COLOURS) else None
    palette = matplotlib.colormaps["tab20"]
    for place, (number, name) in enumerate(names.items()):
        own = [place for place, group in enumerate(group_of) if group == number]
        colour = colours[place] if colours else palette(place % 20)
        xs, ys = ([found[key][place] for place in own] for key in "xy")
        axes.scatter(xs, ys, s=4, color=[colour], label=name, linewidths=0)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), markerscale=3, fontsize=7)


def _draw_cells(
    axes: Axes,
    shades: Sequence[Sequence[float]],
    texts: Sequence[Sequence[str]],
    rows: Sequence[str],
    columns: Sequence[str],
) -> None:
    axes.imshow(shades, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    few = len(rows) <= MANY_CLASSES
    axes.set_yticks(range(len(rows)), rows) if few else axes.set_yticks([])
    axes.set_xticks(range(len(columns)), columns, rotation=90)
    for spine in axes.spines.values():
        spine.set_visible(False)
    for row, line in enumerate(texts if few else ()):
        for column, text in enumerate(line):
            colour = "white" if shades[row][column] > 0.6 else "black"
            axes.text(column, row, text, ha="center", va="center", fontsize=6, color=colour)
