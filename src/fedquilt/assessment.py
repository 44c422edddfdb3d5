"""Assessment: how good the model of a run is, or, where clients have their own, how good theirs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedquilt.data.allocation import Allocation
from fedquilt.data.dataset import MultiLabelDataset
from fedquilt.engines.local import LocalEngine
from fedquilt.evaluation import Evaluation, predict_probabilities, report_on
from fedquilt.method import Method, State
from fedquilt.metrics import AnnotationStatus, Report, by_annotation_status
from fedquilt.metrics.over_reports import (
    class_mean_over_reports,
    deviation_over_reports,
    mean_over_reports,
)
from fedquilt.site_assessment import SiteAssessment, SiteRows, reports_by_site
from fedquilt.task import Task
from fedquilt.tree import Weights

GLOBAL = "global"


@dataclass(frozen=True)
class Assessment:
    """One report for the global model, or one per client under the client's name."""

    reports: Mapping[str, Report]
    annotation_status: Mapping[str, Any]
    by_site: SiteAssessment | None = None  # where it was asked for and clients are sites

    @property
    def averages(self) -> dict[str, float | None]:
        """The metrics; over clients' own models, their mean. None where undefined."""
        return mean_over_reports(self.reports.values())

    @property
    def spread(self) -> dict[str, float | None]:
        """The standard deviation over clients' own models; None for one global model."""
        return deviation_over_reports(self.reports.values())

    def per_class(self, metric: str) -> dict[str, float | None]:
        """A metric by class; over clients' own models, the mean of those where it is defined."""
        return class_mean_over_reports(self.reports.values(), metric)


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
    sites: SiteRows,
) -> Assessment:
    """How good the models are on all test images and, with ``sites``, on those of each site."""
    workspace = engine.workspace
    reports: dict[str, Report] = {}
    at_sites: dict[str, Report] = {}
    for name, weights in models_of(method, server, engine).items():
        probabilities = predict_probabilities(
            workspace.forward,
            weights,
            test.images,
            task,
            batch_size=settings.batch_size,
            device=workspace.device,
        )
        reports[name] = report_on(probabilities, test, settings)
        own = {name: sites[name]} if name in sites else {}
        judged = sites if name == GLOBAL else own
        at_sites |= reports_by_site(probabilities, test, judged, settings)
    by_site = None
    if at_sites:
        images = {name: len(sites[name]) for name in at_sites}
        by_site = SiteAssessment("global" if GLOBAL in reports else "own", at_sites, images)
    return Assessment(reports, _annotation_status(reports, allocation), by_site)


def _annotation_status(reports: Mapping[str, Report], allocation: Allocation) -> AnnotationStatus:
    annotated = {holding.name: holding.known.any(0).tolist() for holding in allocation.holdings}
    one_for_all = reports.get(GLOBAL)
    if one_for_all is not None:
        return by_annotation_status(one_for_all, annotated)
    return by_annotation_status(reports, {name: annotated[name] for name in reports})
