"""Common style of pictures and numbers: fonts, grid, colours, metric names and percentages."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

UNDEFINED = "–"  # shown in place of an undefined number
TITLES = {
    "macro_auc": "AUC",
    "map": "mAP",
    "bacc": "BACC",
    "macro_f1": "F1",
    "micro_auc": "micro AUC",
    "hamming": "Hamming",
    "subset_accuracy": "exact match",
    "auc": "AUC",
    "ap": "AP",
    "f1": "F1",
    "ppv": "PPV",
    "npv": "NPV",
}
SMALLER_IS_BETTER = ("hamming",)
# The palette of Okabe and Ito without yellow, which is hard to see on white; means are black.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
LINE_STYLES = ("-", "--", ":")
MEAN_COLOUR = "#000000"
MUTED_COLOUR = "#999999"
FEW_POINTS = 20  # up to this number points have markers, so that a single one is visible
SETTINGS: Any = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.2,
    "savefig.dpi": 150,
}


def title(metric: str) -> str:
    return TITLES.get(metric, metric.replace("_", " "))


def percent(value: float | None) -> str:
    return UNDEFINED if value is None else f"{100 * value:.1f}"


def mean_or_none(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are not None, or None."""
    defined = [value for value in values if value is not None]
    return statistics.fmean(defined) if defined else None


def deviation_or_none(values: Iterable[float | None]) -> float | None:
    """Return the sample standard deviation, or None for fewer than two values."""
    defined = [value for value in values if value is not None]
    return statistics.stdev(defined) if len(defined) > 1 else None


@contextmanager
def picture_style() -> Iterator[None]:
    import matplotlib

    with matplotlib.rc_context(SETTINGS):
        yield


def new_figure(width: float, height: float) -> Figure:
    """Create a figure that needs no display; sizes are in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def prepare_round_axes(axes: Axes, heading: str, *, name_rounds: bool = True) -> None:
    """Set up axes for a quantity over rounds, with integer ticks."""
    from matplotlib.ticker import MaxNLocator

    axes.grid(visible=True)
    axes.set_title(heading)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    if name_rounds:
        axes.set_xlabel("round")


def line_style(position: int, point_count: int) -> dict[str, Any]:
    """Return plot settings for one of up to 18 distinguishable lines."""
    marks = {"marker": "o", "markersize": 3} if point_count <= FEW_POINTS else {}
    return {
        "color": COLOURS[position % len(COLOURS)],
        "linestyle": LINE_STYLES[position // len(COLOURS) % len(LINE_STYLES)],
        **marks,
    }


def save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
