"""Annotation map as a table in the terminal and as a picture."""

from __future__ import annotations

from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table
from rich.text import Text

from fedquilt.data.checks.annotation_map import DISCLOSURE_FLOOR, AnnotationMap
from fedquilt.reports.best_and_worst import best_and_worst, fill

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_MATRIX_SITES = 8  # that fit side by side in 100 columns
NOT_ANNOTATED = "–"
ONE_SIDED = "▲"
MAX_DRAWN_SITES = 23  # columns of a picture, beside the sum of the others
ALL_CLASSES = "all of them with --json"
ORANGE, GREY = "#D55E00", "#BBBBBB"  # from a palette safe for colour blindness


def short(count: int) -> str:
    """Format a count in at most four characters: 999, 1.2k, 12k, 456k, 7.9M."""
    if count < 1000:
        return str(count)
    if count < 999_500:
        return f"{count / 1000:.1f}k" if count < 9_950 else f"{count / 1000:.0f}k"
    return f"{count / 1_000_000:.1f}M"


def annotation_table(found: AnnotationMap) -> Table:
    """Return a table of classes by sites or, with many sites, of totals per class."""
    table = Table(
        title="Annotation map",
        caption=f"positives / annotated images; {NOT_ANNOTATED} not annotated"
        + (f"; {ONE_SIDED} only 1s or only 0s" if found.has_one_sided else ""),
        caption_justify="left",
        box=box.SIMPLE_HEAD,
    )
    longest = max(map(len, found.classes))
    table.add_column("class", overflow="fold", min_width=min(longest, 20), max_width=24)
    if len(found.sites) <= MAX_MATRIX_SITES:
        _fill_matrix(table, found)
    else:
        _fill_summary(table, found)
    return table


def _fill_matrix(table: Table, found: AnnotationMap) -> None:
    stacked = len(found.sites) > 4  # write the two numbers below each other to save width
    for site in found.sites:
        table.add_column(
            Text(site), justify="right", overflow="fold", max_width=6 if stacked else 14
        )
    if len(found.sites) > 1:
        table.add_column("total", justify="right")
    totals = [sum(found.images)] if len(found.sites) > 1 else []
    table.add_row("images", *(short(count) for count in (*found.images, *totals)), end_section=True)

    def cells(index: int) -> list[str | Text]:
        shown = [
            _cell(present[index], known[index], stacked)
            + (f" {ONE_SIDED}" if found.is_one_sided(site, index) else "")
            for site, (present, known) in enumerate(zip(found.positives, found.annotated))
        ]
        if len(found.sites) > 1:
            shown.append(_cell(positives[index], annotated[index], stacked))
        return [Text(found.classes[index]), *shown]

    positives, annotated = found.total_positives, found.total_annotated
    fill(table, range(len(found.classes)), cells, positives.__getitem__, ALL_CLASSES)


def _cell(present: int, known: int, stacked: bool) -> str:
    if not known:
        return NOT_ANNOTATED
    return f"{short(present)}\n/{short(known)}" if stacked else f"{present:,}/{known:,}"


def _fill_summary(table: Table, found: AnnotationMap) -> None:
    for title in ("sites", "positives", "annotated", "fewest positives at a site"):
        table.add_column(title, justify="right")

    def cells(index: int) -> list[str | Text]:
        present = [
            row[index] for known, row in zip(found.annotated, found.positives) if known[index]
        ]
        return [
            Text(found.classes[index]),
            f"{len(present)} of {len(found.sites)}",
            f"{positives[index]:,}",
            f"{annotated[index]:,}",
            f"{min(present):,}" if present else NOT_ANNOTATED,
        ]

    positives, annotated = found.total_positives, found.total_annotated
    fill(table, range(len(found.classes)), cells, positives.__getitem__, ALL_CLASSES)


def save_annotation_picture(found: AnnotationMap, path: Path) -> None:
    """Save the map to ``path``, in the format of its suffix."""
    draw_annotation_map(found).savefig(path, dpi=150)


def draw_annotation_map(found: AnnotationMap) -> Figure:
    """Draw the map; the shade is the share of a site's images annotated, hatched means none.

    Of many classes the most and the least frequent are drawn, of many sites the largest; the
    others are one column.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    class_count = len(found.classes)
    positives = found.total_positives
    kept = best_and_worst(range(class_count), positives.__getitem__)
    found = found.of_classes(kept.shown).with_largest_sites(MAX_DRAWN_SITES)
    longest = max(map(len, found.classes))
    width = 2.2 + 0.08 * longest + 0.95 * len(found.sites)
    figure = Figure(
        figsize=(max(6.4, width), 1.7 + 0.38 * len(found.classes)), layout="constrained"
    )
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    shares = [
        [known[index] / max(images, 1) for known, images in zip(found.annotated, found.images)]
        for index in range(len(found.classes))
    ]
    # Leave out the darkest fifth of the palette, so that frames and text stay legible.
    shown = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1.25, aspect="auto")
    _label_axes(axes, found)
    for row, class_shares in enumerate(shares):
        for column, share in enumerate(class_shares):
            present, known = found.positives[column][row], found.annotated[column][row]
            is_one_sided = found.is_one_sided(column, row)
            _draw_cell(axes, column, row, present, known, share, is_one_sided=is_one_sided)
    steps = [step / 50 for step in range(51)]
    bar = figure.colorbar(shown, ax=axes, fraction=0.04, pad=0.02, aspect=30, boundaries=steps)
    bar.set_ticks([0, 0.5, 1], labels=["0 %", "50 %", "100 %"], fontsize=8)
    bar.set_label("share of images annotated", fontsize=8)
    figure.supxlabel(
        "positives / annotated    hatched: not annotated    "
        f"framed: fewer than {DISCLOSURE_FLOOR} positives"
        + (f"    {ONE_SIDED} only 1s or only 0s" if found.has_one_sided else "")
        + (f"\nthe most and the least frequent of {class_count:,} classes" if kept.omitted else ""),
        fontsize=8,
    )
    return figure


def _label_axes(axes: Axes, found: AnnotationMap) -> None:
    rows, columns = len(found.classes), len(found.sites)
    names = [_plain("\n".join(wrap(site, 12)[:3])) for site in found.sites]
    counts = [f"{short(count)} images" for count in found.images]
    axes.set_xticks(range(columns), [f"{name}\n{n}" for name, n in zip(names, counts)], fontsize=9)
    axes.set_yticks(range(rows), [_plain(name) for name in found.classes], fontsize=9)
    axes.xaxis.tick_top()
    axes.set_xticks([edge - 0.5 for edge in range(columns + 1)], minor=True)
    axes.set_yticks([edge - 0.5 for edge in range(rows + 1)], minor=True)
    axes.tick_params(which="both", length=0)
    axes.grid(which="minor", color="white", linewidth=2)
    axes.spines[:].set_visible(False)


def _plain(name: str) -> str:
    return name.replace("$", r"\$")  # matplotlib treats text between dollar signs as a formula


def _draw_cell(
    axes: Axes,
    column: int,
    row: int,
    present: int,
    known: int,
    share: float,
    *,
    is_one_sided: bool,
) -> None:
    from matplotlib.patches import Rectangle

    if not known:
        corner = (column - 0.5, row - 0.5)
        axes.add_patch(
            Rectangle(corner, 1, 1, facecolor="#F4F4F4", edgecolor=GREY, hatch="////", linewidth=0)
        )
        return
    if present < DISCLOSURE_FLOOR:
        corner = (column - 0.44, row - 0.38)
        for colour, width in (("white", 4.0), (ORANGE, 2.0)):  # white is visible in grey prints
            axes.add_patch(
                Rectangle(corner, 0.88, 0.76, fill=False, edgecolor=colour, linewidth=width)
            )
    text = f"{short(present)} / {short(known)}" + (f" {ONE_SIDED}" if is_one_sided else "")
    colour = "white" if share > 0.75 else "black"
    axes.text(column, row, text, ha="center", va="center", color=colour, fontsize=8)
