"""Several reports as one: mean and deviation over models or sites, None where undefined."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable

from fedquilt.metrics.averaging import defined_only
from fedquilt.metrics.report import Report


def mean_over_reports(reports: Collection[Report]) -> dict[str, float | None]:
    """Every average, over the reports where it is defined."""
    return {name: _mean(values) for name, values in _defined(reports).items()}


def deviation_over_reports(reports: Collection[Report]) -> dict[str, float | None]:
    """The standard deviation of a sample; None below two reports."""
    return {
        name: statistics.stdev(values) if len(values) > 1 else None
        for name, values in _defined(reports).items()
    }


def count_over_reports(reports: Collection[Report]) -> dict[str, int]:
    """In how many reports each average is defined."""
    return {name: len(values) for name, values in _defined(reports).items()}


def class_mean_over_reports(reports: Collection[Report], metric: str) -> dict[str, float | None]:
    """A metric by class, over the reports where it is defined."""
    classes = next(iter(reports)).classes
    columns = zip(*(report.per_class[metric] for report in reports))
    return {name: _mean(column) for name, column in zip(classes, columns)}


def _defined(reports: Collection[Report]) -> dict[str, list[float]]:
    names = next(iter(reports)).averages
    return {name: defined_only(report.averages[name] for report in reports) for name in names}


def _mean(values: Iterable[float]) -> float | None:
    defined = defined_only(values)
    return statistics.fmean(defined) if defined else None
