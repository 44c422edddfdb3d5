"""Line charts as numbers for an SVG template: scaled points, ticks and labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedquilt.reports.html.formatting import number
from fedquilt.reports.style import FEW_POINTS, UNDEFINED

WIDTH, HEIGHT = 560, 200  # of the plotting area, in SVG units


@dataclass(frozen=True)
class Line:
    """One line of a chart; ``style`` is a CSS class, so that colour and dashes go together."""

    label: str
    style: str
    values: tuple[float | None, ...]  # one for each x; None leaves a gap


@dataclass(frozen=True)
class Tick:
    place: float
    text: str


@dataclass(frozen=True)
class DrawnLine:
    label: str
    style: str
    pieces: tuple[str, ...]  # points of polylines, between the gaps
    dots: tuple[tuple[float, float], ...]
    last: str  # the last value, for the legend


@dataclass(frozen=True)
class LineChart:
    """A chart in SVG units; ``mark`` is the place of a marked x, such as the chosen round."""

    title: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    lines: tuple[DrawnLine, ...]
    mark: float | None
    reference: float | None  # the place of a horizontal line, such as chance
    width: int = WIDTH
    height: int = HEIGHT


def line_chart(
    title: str,
    rounds: Sequence[int],
    lines: Sequence[Line],
    *,
    scale: float = 1.0,
    digits: int = 1,
    marked: int | None = None,
    reference: float | None = None,
) -> LineChart | None:
    """Scale the lines into a chart; None if no value is defined.

    Args:
        title: what is drawn.
        rounds: the x of every value.
        lines: what to draw.
        scale: 100 for shares in percent.
        digits: of the last values in the legend.
        marked: the round to mark with a vertical line.
        reference: a value to draw as a horizontal line, if it is inside the chart.
    """
    values = [scale * each for line in lines for each in line.values if each is not None]
    if not values:
        return None
    low, high, step = _bounds(min(values), max(values), most=scale if scale == 100 else None)
    first, last = rounds[0], rounds[-1]

    def x(place: int) -> float:
        return WIDTH / 2 if first == last else WIDTH * (place - first) / (last - first)

    def y(value: float) -> float:
        return HEIGHT * (high - value) / (high - low)

    steps = round((high - low) / step)
    ticks = [low + step * each for each in range(steps + 1)]
    shown = None if reference is None else scale * reference
    return LineChart(
        title=title,
        x_ticks=tuple(Tick(x(each), str(each)) for each in _round_ticks(first, last)),
        y_ticks=tuple(Tick(y(each), f"{each:g}") for each in map(_rounded, ticks)),
        lines=tuple(_drawn(line, rounds, x, y, scale, digits) for line in lines),
        mark=None if marked is None or not first <= marked <= last else x(marked),
        reference=None if shown is None or not low < shown < high else y(shown),
    )


def _drawn(
    line: Line,
    rounds: Sequence[int],
    x: Callable[[int], float],
    y: Callable[[float], float],
    scale: float,
    digits: int,
) -> DrawnLine:
    pieces: list[list[str]] = [[]]
    dots = []
    for place, value in zip(rounds, line.values):
        if value is None:
            pieces.append([])
            continue
        dots.append((round(x(place), 1), round(y(scale * value), 1)))
        pieces[-1].append(f"{dots[-1][0]:g},{dots[-1][1]:g}")
    defined = [value for value in line.values if value is not None]
    return DrawnLine(
        label=line.label,
        style=line.style,
        pieces=tuple(" ".join(piece) for piece in pieces if len(piece) > 1),
        dots=tuple(dots) if len(dots) <= FEW_POINTS else (dots[0], dots[-1]),
        last=number(scale * defined[-1], digits) if defined else UNDEFINED,
    )


def _bounds(least: float, largest: float, most: float | None = None) -> tuple[float, float, float]:
    """Return round bounds around the values, not above ``most``, and the step between ticks."""
    span = (largest - least) or max(abs(largest) / 10, 1e-3)
    step = 10 ** math.floor(math.log10(span / 2))
    while span / step > 5:
        step *= 2.5 if f"{step:e}"[0] == "2" else 2
    low, high = math.floor(least / step) * step, math.ceil(largest / step) * step
    if high > low:
        return low, high, step
    return (low - step, low, step) if low == most else (low, low + step, step)


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def _round_ticks(first: int, last: int) -> list[int]:
    step = max(1, math.ceil((last - first) / 8))
    for nice in (1, 2, 5, 10, 20, 50, 100, 200, 500):
        if nice >= step:
            step = nice
            break
    ticks = [each for each in range(first, last + 1) if each % step == 0]
    return ticks or [first]
