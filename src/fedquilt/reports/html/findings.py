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


@dataclass(frozen=True)
class Threshold:
    """From which score on a class is called present."""

    probability: float | None
    rule: str  # in words
    is_fitted: bool = False


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
    threshold: Threshold = Threshold(None, "")
    annotators: Sequence[str] = ()

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

    With one model per client, a number is the mean over the models where it is defined.
    """
    reports = list(run.result.get("reports", {}).values())
    if not reports:
        return []
    return [
        _finding(run, place, name, reports, run.annotators.get(name, ()))
        for place, name in enumerate(reports[0]["classes"])
    ]


def shown_intervals(run: RunFiles) -> Mapping[str, Any]:
    """Return the intervals of the global model, or of the mean over the clients' models."""
    found: Mapping[str, Any] = run.result.get("mean_intervals") or next(
        iter(run.result.get("intervals", {}).values()), {}
    )
    return found


def _finding(
    run: RunFiles,
    place: int,
    name: str,
    reports: Sequence[Mapping[str, Any]],
    annotators: Sequence[str],
) -> Finding:
    first, tables = reports[0]["per_class"], [report["per_class"] for report in reports]
    intervals = shown_intervals(run)
    patients = intervals if intervals.get("unit") == "patient" else {}

    def estimate(ours: str, theirs: str) -> Estimate:
        columns = intervals.get("per_class", {}).get(ours)
        if columns is None:
            return _estimate(tables, theirs, place)
        return Estimate(*(columns[field][place] for field in ("value", "low", "high")))

    return Finding(
        place=place,
        name=name,
        positives=int(first["positives"][place]),
        negatives=int(first["negatives"][place]),
        positive_patients=patients["positive_patients"][place] if patients else None,
        negative_patients=patients["negative_patients"][place] if patients else None,
        auc=estimate("auc", "auc"),
        ap=estimate("ap", "ap"),
        sensitivity=estimate("sensitivity", "recall"),
        specificity=estimate("specificity", "specificity"),
        ppv=estimate("ppv", "precision"),
        npv=estimate("npv", ""),
        threshold=threshold_of(run, name),
        annotators=annotators,
    )


def threshold_of(run: RunFiles, name: str) -> Threshold:
    """Return from which score on the served model calls a class present, and by which rule."""
    fitted = run.model.get("thresholds", {})
    entry = fitted.get("classes", {}).get(name)
    if entry is None:
        return Threshold(run.model.get("threshold"), "fixed")
    if "fallback" in entry:
        return Threshold(entry.get("probability"), f"not fitted: {entry['fallback']}")
    rule = str(entry.get("rule", fitted.get("rule", "")))
    return Threshold(entry.get("probability"), rule, is_fitted=bool(fitted.get("fitted_on")))


def _estimate(per_class: Sequence[Mapping[str, Any]], metric: str, place: int) -> Estimate:
    values = [each[metric][place] for each in per_class if metric in each]
    defined = [value for value in values if value is not None]
    return Estimate(statistics.fmean(defined) if defined else None)
