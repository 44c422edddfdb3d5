"""The style of all pictures and numbers: font, grid, colours, percent."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NOTHING = "–"
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
}
SMALLER_IS_BETTER = ("hamming",)


def title(metric: str) -> str:
    return TITLES.get(metric, metric.replace("_", " "))


def percent(value: float | None) -> str:
    return NOTHING if value is None else f"{100 * value:.1f}"


def mean_or_none(values: Iterable[float | None]) -> float | None:
    """Over those that are there."""
    defined = [value for value in values if value is not None]
    return statistics.fmean(defined) if defined else None


def deviation_or_none(values: Iterable[float | None]) -> float | None:
    """The standard deviation of a sample; None below two values."""
    defined = [value for value in values if value is not None]
    return statistics.stdev(defined) if len(defined) > 1 else None


# The palette of Okabe and Ito without its yellow, which vanishes on white; black is for means.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
LINE_STYLES = ("-", "--", ":")
MEAN_COLOUR = "#000000"
QUIET = "#999999"
FEW_POINTS = 20  # up to here points are marked, so that even a single one is seen

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


@contextmanager
def house_style() -> Iterator[None]:
    import matplotlib

    with matplotlib.rc_context(SETTINGS):
        yield


def new_figure(width: float, height: float) -> Figure:
    """A figure that needs no window system; sizes in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def prepare_round_axes(axes: Axes, heading: str, *, name_rounds: bool = True) -> None:
    """Axes for something over rounds, which are whole numbers."""
    from matplotlib.ticker import MaxNLocator

    axes.grid(visible=True)
    axes.set_title(heading)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    if name_rounds:
        axes.set_xlabel("round")


def line_look(position: int, point_count: int) -> dict[str, Any]:
    """Eighteen lines that can be told apart, also without colour."""
    marks = {"marker": "o", "markersize": 3} if point_count <= FEW_POINTS else {}
    return {
        "color": COLOURS[position % len(COLOURS)],
        "linestyle": LINE_STYLES[position // len(COLOURS) % len(LINE_STYLES)],
        **marks,
    }


def save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
