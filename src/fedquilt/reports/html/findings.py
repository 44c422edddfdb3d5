"""Findings: for every class what a run's result says of it, with intervals where there are any."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fedquilt.reports.html.run_files import RunFiles

FEW = 10  # patients of a kind; with fewer, a number is mostly chance
CHANCE = 0.5  # the AUC of a model that knows nothing

Judgement = Literal["measured", "chance", "few", "untested"]


@dataclass(frozen=True)
class Estimate:
    """A number and its 95 % interval; either may be missing."""

    value: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def has_interval(self) -> bool:
        return self.low is not None and self.high is not None


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One class in the test part."""

    place: int  # in the run's order of classes
    name: str
    positives: int  # annotated test images
    negatives: int
    positive_patients: int | None = None  # None: the data do not name patients
    negative_patients: int | None = None
    auc: Estimate = Estimate()
    ap: Estimate = Estimate()
    sensitivity: Estimate = Estimate()
    specificity: Estimate = Estimate()
    ppv: Estimate = Estimate()
    npv: Estimate = Estimate()
    annotators: tuple[str, ...] = ()

    @property
    def fewest(self) -> int:
        """The patients (images, if patients are unknown) of the rarer kind."""
        positive, negative = self.positive_patients, self.negative_patients
        return min(
            self.positives if positive is None else positive,
            self.negatives if negative is None else negative,
        )

    @property
    def judgement(self) -> Judgement:
        """Whether the test can tell anything about this class."""
        if self.auc.value is None:
            return "untested"
        if self.fewest < FEW:
            return "few"
        if self.auc.low is not None and self.auc.low <= CHANCE:
            return "chance"
        return "measured"


def findings_of(run: RunFiles) -> list[Finding]:
    """Return the classes in the run's order.

    With one model per client, a number is the mean over the models where it is defined, and has
    no interval.
    """
    reports = list(run.result.get("reports", {}).values())
    if not reports:
        return []
    annotators = annotators_of(run)
    return [
        _finding(place, name, reports, annotators.get(name, ()))
        for place, name in enumerate(reports[0]["classes"])
    ]


def annotators_of(run: RunFiles) -> dict[str, tuple[str, ...]]:
    """Return, for every class, the sites that annotated it in at least one image."""
    classes = list(run.data.get("classes") or run.model.get("classes") or _reported_classes(run))
    return {
        name: tuple(site for site, annotates in run.annotated.items() if annotates[place])
        for place, name in enumerate(classes)
    }


def _reported_classes(run: RunFiles) -> Sequence[str]:
    reports = run.result.get("reports", {})
    return next(iter(reports.values()))["classes"] if reports else ()


def _finding(
    place: int, name: str, reports: Sequence[Mapping[str, Any]], annotators: tuple[str, ...]
) -> Finding:
    first, tables = reports[0]["per_class"], [report["per_class"] for report in reports]
    return Finding(
        place=place,
        name=name,
        positives=int(first["positives"][place]),
        negatives=int(first["negatives"][place]),
        auc=_estimate(tables, "auc", place),
        ap=_estimate(tables, "ap", place),
        sensitivity=_estimate(tables, "recall", place),
        specificity=_estimate(tables, "specificity", place),
        ppv=_estimate(tables, "precision", place),
        annotators=annotators,
    )


def _estimate(per_class: Sequence[Mapping[str, Any]], metric: str, place: int) -> Estimate:
    values = [each[metric][place] for each in per_class]
    defined = [value for value in values if value is not None]
    return Estimate(statistics.fmean(defined) if defined else None)
