"""Numbers as people read them: percent with one decimal, and a dash where there is none."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

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
