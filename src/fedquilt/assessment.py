"""Assessment: how good the model of a run is, or, where clients have their own, how good theirs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedquilt.data.allocation import Allocation
from fedquilt.data.dataset import MultiLabelDataset
from fedquilt.engines.local import LocalEngine
from fedquilt.evaluation import Evaluation, evaluate
from fedquilt.method import Method, State
from fedquilt.metrics import Report, by_annotation_status
from fedquilt.task import Task
from fedquilt.tree import Weights

GLOBAL = "global"


@dataclass(frozen=True)
class Assessment:
    """One report for the global model, or one per client under the client's name."""

    reports: Mapping[str, Report]
    annotation_status: Mapping[str, Any]

    @property
    def averages(self) -> dict[str, float | None]:
        """The metrics; over clients' own models, their mean. None where undefined."""
        return {name: _mean(self._values(name)) for name in self._names()}

    @property
    def spread(self) -> dict[str, float | None]:
        """The standard deviation over clients' own models; None for one global model."""
        return {name: _deviation(self._values(name)) for name in self._names()}

    def per_class(self, metric: str) -> dict[str, float | None]:
        """A metric by class; over clients' own models, the mean of those where it is defined."""
        classes = next(iter(self.reports.values())).classes
        columns = zip(*(report.per_class[metric] for report in self.reports.values()))
        return {name: _mean(_defined(column)) for name, column in zip(classes, columns)}

    def _names(self) -> list[str]:
        return list(next(iter(self.reports.values())).averages)

    def _values(self, name: str) -> list[float]:
        return _defined(report.averages[name] for report in self.reports.values())


def models_of(method: Method, server: State, engine: LocalEngine) -> dict[str, Weights]:
    """The global model, or each client's own."""
    weights = method.global_weights(server)
    if weights is not None:
        return {GLOBAL: weights}
    return dict(engine.personal_weights(method, method.broadcast(server)))


def assess(
    method: Method,
    server: State,
    engine: LocalEngine,
    task: Task,
    test: MultiLabelDataset,
    settings: Evaluation,
    allocation: Allocation,
) -> Assessment:
    workspace = engine.workspace
    reports = {
        name: evaluate(workspace.forward, weights, test, task, settings, workspace.device)
        for name, weights in models_of(method, server, engine).items()
    }
    annotated = {holding.name: holding.known.any(0).tolist() for holding in allocation.holdings}
    one_for_all = reports.get(GLOBAL)
    status = by_annotation_status(
        reports if one_for_all is None else one_for_all,
        annotated if one_for_all is not None else {name: annotated[name] for name in reports},
    )
    return Assessment(reports, status)


def _defined(values: Any) -> list[float]:
    return [value for value in values if not math.isnan(value)]


def _mean(values: list[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _deviation(values: list[float]) -> float | None:
    return statistics.stdev(values) if len(values) > 1 else None
