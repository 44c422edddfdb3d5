"""Assessment of a run's models, global or one per client, on all test images and by site."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from fedquilt.metrics.evaluation import Evaluation, called_present, predict_logits, report_on
from fedquilt.metrics.own_metrics import NO_METRICS, Metrics, with_own_metrics
from fedquilt.metrics.report import (
    class_mean_over_reports,
    count_over_reports,
    deviation_over_reports,
    mean_over_reports,
)
from fedquilt.training.method import Method, State
from fedquilt.training.task import Task

GLOBAL = "global"
SiteSamples: TypeAlias = Mapping[str, Tensor]  # client -> (n,) int64: the test images of its site
NO_SITES: SiteSamples = MappingProxyType({})
NO_REPORTS: Mapping[str, Report] = MappingProxyType({})
NO_THRESHOLDS: Mapping[str, Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True)
class Assessment:
    """One report for the global model, or one per client, by the client's name."""

    reports: Mapping[str, Report]
    logits: Mapping[str, Tensor]  # of each model, (N, C) on the CPU
    by_site: SiteAssessment | None = None  # if requested and clients are sites

    @property
    def averages(self) -> dict[str, float | None]:
        """The metrics of the global model, or their mean over clients; None if undefined."""
        return mean_over_reports(self.reports.values())

    @property
    def spread(self) -> dict[str, float | None]:
        """The standard deviation over the clients' models; None for a global model."""
        return deviation_over_reports(self.reports.values())

    def per_class(self, metric: str) -> dict[str, float | None]:
        """Return a metric by class: the mean over the models for which it is defined."""
        return class_mean_over_reports(self.reports.values(), metric)


@dataclass(frozen=True)
class SiteAssessment:
    """For every client, a report on the test images of its site.

    A site rarely has every class. A class without a positive or without a negative there cannot be
    tested, and is excluded from all of the site's averages.
    """

    model: Literal["own", "global"]  # one model per client, or one for all
    reports: Mapping[str, Report]
    images: Mapping[str, int]

    def model_of_sites(self) -> dict[str, str]:
        """Return the name of the model that is judged at each site."""
        return {site: GLOBAL if self.model == GLOBAL else site for site in self.reports}

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON; an undefined average is None."""
        reports = self.reports.values()
        return {
            "model": self.model,
            "images": dict(self.images),
            "mean": mean_over_reports(reports),
            "deviation": deviation_over_reports(reports),
            "client_count": count_over_reports(reports),
            "reports": {name: report.to_dict() for name, report in self.reports.items()},
        }


def models_of(method: Method, server: State, engine: SequentialEngine) -> dict[str, Weights]:
    """Return the weights of the global model, or of each client's model."""
    weights = method.global_weights(server)
    if weights is not None:
        return {GLOBAL: weights}
    return dict(engine.personal_weights(method, method.broadcast(server)))


def model_logits(
    models: Mapping[str, Weights],
    engine: SequentialEngine,
    task: Task,
    images: Tensor,
    settings: Evaluation,
) -> Iterator[tuple[str, Tensor]]:
    """Yield each model's name and its logits (N, C) for the images, on the engine's device.

    Several processes share the images; the batches are those of one process.
    """
    workspace, processes = engine.workspace, engine.processes
    batches = torch.arange(len(images)).split(settings.batch_size)
    every = range(min(processes.count, len(batches)))
    rows = {number: torch.cat([*batches[number :: processes.count]]) for number in every}
    is_alone = processes.count == 1
    for name, weights in models.items():
        logits = torch.empty(0, task.class_count)
        if processes.number in rows:
            logits = predict_logits(
                workspace.forward,
                weights,
                images if is_alone else images[rows[processes.number]],
                task,
                batch_size=settings.batch_size,
                device=workspace.device,
            )
        if not is_alone:
            found = processes.share_trees({"logits": logits})
            logits = torch.empty(len(images), task.class_count)
            for number, place in rows.items():
                logits[place] = found[number]["logits"]
        yield name, logits


def assess(
    logits_of_models: Iterable[tuple[str, Tensor]],
    test: MultiLabelDataset,
    settings: Evaluation,
    sites: SiteSamples = NO_SITES,
    thresholds: Mapping[str, Mapping[str, Any]] = NO_THRESHOLDS,
    before: Mapping[str, Report] = NO_REPORTS,
    metrics: Metrics = NO_METRICS,
) -> Assessment:
    """Evaluate the models on all test images and, if ``sites`` is not empty, on each site's.

    ``thresholds`` are those of each model's classes, where they differ from the recipe's one.
    ``before`` are reports of the same models without such thresholds. ``metrics`` are the user's
    own, on all test images.
    """
    reports: dict[str, Report] = {}
    at_sites: dict[str, Report] = {}
    kept: dict[str, Tensor] = {}
    for name, logits in logits_of_models:
        kept[name] = logits.cpu()
        probabilities = torch.sigmoid(kept[name])
        fitted = thresholds.get(name, {})
        called = called_present(kept[name], settings, test.classes, fitted) if fitted else None
        if name in before and not fitted:
            reports[name] = before[name]
        else:
            report = report_on(probabilities, test, settings, called)
            reports[name] = with_own_metrics(report, metrics, probabilities, test)
        own = {name: sites[name]} if name in sites else {}
        evaluated = sites if name == GLOBAL else own
        at_sites |= reports_by_site(probabilities, test, evaluated, settings, called)
    by_site = None
    if at_sites:
        images = {name: len(sites[name]) for name in at_sites}
        by_site = SiteAssessment("global" if GLOBAL in reports else "own", at_sites, images)
    return Assessment(reports, kept, by_site)


def annotation_status(reports: Mapping[str, Report], allocation: Allocation) -> AnnotationStatus:
    """Return the models' averages on the classes that each client annotates, and on the others."""
    masks: dict[bytes, list[bool]] = {}  # clients with the same share one
    annotated = {}
    for holding in allocation.holdings:
        row = holding.known.any(0).numpy()
        annotated[holding.name] = masks.setdefault(row.tobytes(), row.tolist())
    global_report = reports.get(GLOBAL)
    if global_report is not None:
        return by_annotation_status(global_report, annotated)
    return by_annotation_status(reports, {name: annotated[name] for name in reports})


def samples_by_site(
    test: MultiLabelDataset, partition: Partition, clients: Sequence[str]
) -> SiteSamples:
    """Return the test images of each client's site.

    The result is empty if clients are not sites, or if all test images come from other sites.
    """
    if test.sites is None or not isinstance(partition, Natural) or partition.by != "site":
        return NO_SITES
    samples: dict[str, list[int]] = {name: [] for name in clients}
    for sample, site in enumerate(test.sites):
        if site in samples:  # a site that is too small is not a client
            samples[site].append(sample)
    if not any(samples.values()):
        return NO_SITES
    return {name: torch.tensor(own, dtype=torch.int64) for name, own in samples.items()}


def reports_by_site(
    probabilities: Tensor,
    test: MultiLabelDataset,
    sites: SiteSamples,
    settings: Evaluation,
    predicted: Tensor | None = None,
) -> dict[str, Report]:
    """Report on one model at each site, given its probabilities (N, C) for all test images."""
    return {
        name: score(
            probabilities[samples],
            test.labels[samples],
            test.known[samples],
            test.classes,
            threshold=settings.rule,
            strict=settings.strict,
            zero_division="skip",
            predicted=None if predicted is None else predicted[samples],
        ).over_testable_classes()
        for name, samples in sites.items()
    }
