"""Assessment of a run: the global model or the clients' own, overall and by site."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from fedquilt.core.tree import Weights
from fedquilt.data.allocation import Allocation
from fedquilt.data.dataset import MultiLabelDataset
from fedquilt.data.partitions.natural import Natural
from fedquilt.data.partitions.partition import Partition
from fedquilt.engines.sequential import SequentialEngine
from fedquilt.metrics import AnnotationStatus, Report, by_annotation_status, score
from fedquilt.metrics.evaluation import Evaluation, predict_probabilities, report_on
from fedquilt.metrics.report import (
    class_mean_over_reports,
    count_over_reports,
    deviation_over_reports,
    mean_over_reports,
)
from fedquilt.training.method import Method, State
from fedquilt.training.task import Task

SiteRows: TypeAlias = Mapping[str, Tensor]  # client -> (n,) int64: the test images of its site
NO_SITES: SiteRows = MappingProxyType({})


@dataclass(frozen=True)
class SiteAssessment:
    """For every client a report on the test images of its own site.

    A site rarely has every class, so a class whose metric is undefined there is left out of all
    averages: it counts neither as 0 nor as 1.
    """

    model: Literal["own", "global"]  # each client's own, or one for all
    reports: Mapping[str, Report]
    images: Mapping[str, int]

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON; an average is None where it is undefined."""
        reports = self.reports.values()
        return {
            "model": self.model,
            "images": dict(self.images),
            "mean": mean_over_reports(reports),
            "deviation": deviation_over_reports(reports),
            "client_count": count_over_reports(reports),
            "reports": {name: report.to_dict() for name, report in self.reports.items()},
        }


def rows_of_sites(
    test: MultiLabelDataset, partition: Partition, clients: Sequence[str]
) -> SiteRows:
    """Nothing where clients are no sites, or where all test images come from other sites."""
    if test.sites is None or not isinstance(partition, Natural) or partition.by != "site":
        return NO_SITES
    rows: dict[str, list[int]] = {name: [] for name in clients}
    for row, site in enumerate(test.sites):
        if site in rows:  # not a site that was too small to be a client
            rows[site].append(row)
    if not any(rows.values()):
        return NO_SITES
    return {name: torch.tensor(own, dtype=torch.int64) for name, own in rows.items()}


def reports_by_site(
    probabilities: Tensor, test: MultiLabelDataset, sites: SiteRows, settings: Evaluation
) -> dict[str, Report]:
    """One model's report at each of the sites, from its probabilities (N, C) of all test images."""
    return {
        name: score(
            probabilities[rows],
            test.labels[rows],
            test.known[rows],
            test.classes,
            threshold=settings.threshold,
            strict=settings.strict,
            zero_division="skip",
        )
        for name, rows in sites.items()
    }


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


def models_of(method: Method, server: State, engine: SequentialEngine) -> dict[str, Weights]:
    """The global model, or each client's own."""
    weights = method.global_weights(server)
    if weights is not None:
        return {GLOBAL: weights}
    return dict(engine.personal_weights(method, method.broadcast(server)))


def assess(
    method: Method,
    server: State,
    engine: SequentialEngine,
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
