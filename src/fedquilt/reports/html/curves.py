"""Points of the ROC, precision-recall and reliability curves of one class, few enough to draw."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

BINS = 10  # of the reliability diagram
FEW_IN_BIN = 10  # entries; with fewer a point of the reliability diagram is drawn hollow
MIN_ENTRIES = 100  # of a reliability diagram: with fewer its error is of its own size
Z = 1.959963984540054  # of a two-sided 95 % interval


@dataclass(frozen=True)
class Bin:
    """One group of images with similar probabilities."""

    predicted: float  # mean probability
    observed: float  # share of positives
    low: float  # Wilson 95 % interval of that share
    high: float
    entries: int


@dataclass(frozen=True)
class Curves:
    """Points (x, y) from 0 to 1; a curve that is not defined has no points."""

    roc: tuple[tuple[float, float], ...] = ()  # 1 - specificity, sensitivity
    precision_recall: tuple[tuple[float, float], ...] = ()  # recall, precision
    reliability: tuple[Bin, ...] = ()
    entries: int = 0


def curves_of(logits: Floats, positive: Any, *, most_points: int, reliability: bool) -> Curves:
    """Return the curves of the annotated entries of a class, one logit and one bool each."""
    import numpy as np

    count, found = len(logits), int(positive.sum())
    if found in (0, count):
        return Curves(entries=count)
    order = np.argsort(-logits, kind="stable")
    ranked, hits = logits[order], positive[order]
    is_last = np.append(ranked[1:] != ranked[:-1], True)  # of equal scores: one point for all
    true_positives = np.cumsum(hits)[is_last]
    false_positives = np.cumsum(~hits)[is_last]
    sensitivity = np.concatenate(([0.0], true_positives / found))
    alarms = np.concatenate(([0.0], false_positives / (count - found)))
    precision = true_positives / (true_positives + false_positives)
    return Curves(
        roc=_thinned(alarms, sensitivity, most_points),
        precision_recall=_thinned(sensitivity[1:], precision, most_points),
        reliability=_bins(logits, positive) if reliability and count >= MIN_ENTRIES else (),
        entries=count,
    )


def _thinned(xs: Floats, ys: Floats, most: int) -> tuple[tuple[float, float], ...]:
    """Return at most ``most`` of the points, evenly spaced along the curve, with both ends."""
    import numpy as np

    if len(xs) > most:
        way = np.concatenate(([0.0], np.cumsum(np.abs(np.diff(xs)) + np.abs(np.diff(ys)))))
        wanted = np.linspace(0.0, way[-1], most)
        kept = np.unique(np.clip(np.searchsorted(way, wanted), 0, len(xs) - 1))
        xs, ys = xs[kept], ys[kept]
    return tuple(zip(xs.tolist(), ys.tolist()))


def _bins(logits: Floats, positive: Any) -> tuple[Bin, ...]:
    import numpy as np

    probabilities = np.exp(-np.logaddexp(0, -logits.astype(np.float64)))
    place = np.minimum((probabilities * BINS).astype(int), BINS - 1)
    found = []
    for each in range(BINS):
        inside = place == each
        entries = int(inside.sum())
        if entries:
            hits = int(positive[inside].sum())
            low, high = wilson(hits, entries)
            mean = float(probabilities[inside].mean())
            found.append(Bin(mean, hits / entries, low, high, entries))
    return tuple(found)


def wilson(hits: int, count: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share."""
    share, z2 = hits / count, Z * Z
    centre = (share + z2 / (2 * count)) / (1 + z2 / count)
    half = Z / (1 + z2 / count) * math.sqrt(share * (1 - share) / count + z2 / (4 * count**2))
    low = 0.0 if hits == 0 else centre - half
    return low, 1.0 if hits == count else centre + half


def polyline(points: Sequence[tuple[float, float]], size: int, digits: int) -> str:
    """Return the points of an SVG polyline in a square of ``size``, y upwards."""
    return " ".join(f"{size * x:.{digits}f},{size * (1 - y):.{digits}f}" for x, y in points)
