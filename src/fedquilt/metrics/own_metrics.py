"""A user's own metrics: functions that a run computes beside its own on the test images."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TypeAlias

from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.data.dataset import MultiLabelDataset
from fedquilt.metrics.report import Report

# Of probabilities, labels and known, each (N, C); labels mean nothing where they are not known.
Metric: TypeAlias = Callable[[Tensor, Tensor, Tensor], float]
Metrics: TypeAlias = Mapping[str, Metric]
NO_METRICS: Metrics = MappingProxyType({})


def with_own_metrics(
    report: Report, metrics: Metrics, probabilities: Tensor, data: MultiLabelDataset
) -> Report:
    """Add the metrics to the report's averages; NaN says that one is undefined."""
    taken = [name for name in metrics if name in report.averages]
    if taken:
        raise UserError(f"metrics: {taken[0]!r} is a metric of fedquilt; give yours another name")
    values = {
        name: _number(name, metric(probabilities, data.labels, data.known))
        for name, metric in metrics.items()
    }
    return replace(report, averages=report.averages | values) if values else report


def _number(name: str, value: object) -> float:
    if isinstance(value, Tensor) and value.numel() == 1:
        value = value.item()
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise UserError(f"metric {name!r} must return one number, found {value!r}") from None
