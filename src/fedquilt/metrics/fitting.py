"""Thresholds and calibration of all classes, fitted on a validation part, as plain data.

The dicts are what ``model.json`` holds: for each class the fitted numbers and their basis,
or why nothing was fitted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedquilt.metrics.calibration import (
    Calibrator,
    Line,
    Method,
    Outcomes,
    calibrator_from,
    fit_isotonic,
    fit_platt,
    fit_temperature,
    logit,
    reason_not_to_calibrate,
    sigmoid,
)
from fedquilt.metrics.decision_rules import DecisionRules
from fedquilt.metrics.threshold_rules import ThresholdRule
from fedquilt.metrics.thresholds import (
    MIN_PATIENTS,
    Bools,
    Cutoffs,
    Floats,
    cheapest_probability,
    choose,
    cutoffs_of_scores,
    reason_not_to_fit,
)

Interval = tuple[float, float] | None


@dataclass(frozen=True, kw_only=True)
class Basis:
    """The basis of a class's fitted numbers: counts of images and patients."""

    positives: int
    negatives: int
    positive_patients: int
    negative_patients: int
    sites: int | None = None  # that have a positive; None: not known

    def to_dict(self) -> dict[str, int]:
        facts = {"positives": self.positives, "negatives": self.negatives}
        return facts if self.sites is None else {**facts, "sites": self.sites}


@dataclass(frozen=True, eq=False, kw_only=True)
class ClassSample:
    """One class in a validation part: cutoffs, outcomes and their basis."""

    cutoffs: Cutoffs
    outcomes: Outcomes
    basis: Basis
    auc_interval: Interval  # None: undefined


def sample_of_scores(
    logits: Floats,
    labels: NDArray[np.integer[Any]],
    known: Bools,
    patients: NDArray[np.int64] | None,
    sites: NDArray[np.str_] | None,
    auc_interval: Interval,
) -> ClassSample:
    """Return one class's sample; entries that are not known are left out."""
    positive, negative = known & (labels == 1), known & (labels == 0)
    people = np.arange(len(logits)) if patients is None else patients
    kept = logits[known].astype(np.float64)
    hits = positive[known].astype(np.float64)
    return ClassSample(
        cutoffs=cutoffs_of_scores(logits, labels, known),
        outcomes=Outcomes(kept, hits, 1 - hits),
        basis=Basis(
            positives=int(positive.sum()),
            negatives=int(negative.sum()),
            positive_patients=len(np.unique(people[positive])),
            negative_patients=len(np.unique(people[negative])),
            sites=None if sites is None else len(np.unique(sites[positive])),
        ),
        auc_interval=auc_interval,
    )


def fit_calibration(method: Method, samples: Mapping[str, ClassSample]) -> dict[str, Any]:
    """Return each class's calibration by name, or why it has none."""
    if method == "none":
        return {}
    return {name: _calibration(method, sample) for name, sample in samples.items()}


def _calibration(method: Method, sample: ClassSample) -> dict[str, Any]:
    basis = sample.basis
    entries = basis.positives + basis.negatives
    patients = basis.positive_patients, basis.negative_patients
    why = reason_not_to_calibrate(method, *patients, entries, MIN_PATIENTS)
    if why is None:
        fitted = _fit(method, sample.outcomes)
        if fitted is None:
            why = "its calibration does not exist: all scores agree"
        elif isinstance(fitted, Line) and fitted.slope <= 0:
            why = "positives do not score higher than negatives"
        else:
            return {**fitted.to_dict(), **basis.to_dict()}
    return {"fallback": why, **basis.to_dict()}


def _fit(method: Method, outcomes: Outcomes) -> Calibrator | None:
    if method == "isotonic":
        return fit_isotonic(outcomes)
    return fit_platt(outcomes) if method == "platt" else fit_temperature(outcomes)


def fit_thresholds(
    rules: DecisionRules,
    fixed: float,
    samples: Mapping[str, ClassSample],
    calibration: Mapping[str, Any],
) -> dict[str, Any]:
    """Return each class's threshold by name; a class with the fixed rule is left out.

    Args:
        rules: of the recipe.
        fixed: the probability where nothing is fitted.
        samples: every class's validation entries.
        calibration: what :func:`fit_calibration` returned.
    """
    entries = {}
    for name, sample in samples.items():
        rule = rules.of_class(name)
        if rule.kind != "fixed":
            entry = threshold_of(rule, fixed, sample, calibrator_from(calibration.get(name, {})))
            entries[name] = {**entry, **({"rule": rule.text} if name in rules.by_class else {})}
    return entries


def given_thresholds(rules: DecisionRules, classes: tuple[str, ...]) -> dict[str, Any]:
    """Return the thresholds that were given by hand: they need no validation part."""
    given = {name: rules.of_class(name) for name in classes}
    return {
        name: given_threshold(rule.target) for name, rule in given.items() if rule.kind == "given"
    }


def threshold_of(
    rule: ThresholdRule, fixed: float, sample: ClassSample, calibrator: Calibrator | None
) -> dict[str, Any]:
    """Return one class's threshold and what it reached on the validation part."""
    if rule.kind == "given":
        return given_threshold(rule.target)
    facts, cutoffs = sample.basis.to_dict(), sample.cutoffs
    if rule.calibrated:
        if not isinstance(calibrator, Line):
            return fallback(fixed, "it is not calibrated by Platt or temperature", facts)
        found = (float(logit(cheapest_probability(rule))) - calibrator.intercept) / calibrator.slope
        return {**_at(found), **_reached(cutoffs, found), **facts}
    patients = sample.basis.positive_patients, sample.basis.negative_patients
    why = reason_not_to_fit(rule, *patients, sample.auc_interval)
    if why is None:
        found = float(cutoffs.logits[choose(rule, cutoffs)])
        if math.isfinite(found):
            return {**_at(found), **_reached(cutoffs, found), **facts}
        what = "nothing" if found > 0 else "everything"
        why = f"with {rule.text} {what} would be called present"
    return fallback(fixed, why, facts)


def fallback(fixed: float, why: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fixed threshold, and why no other was fitted."""
    return {"logit": _finite_logit(fixed), "probability": fixed, "fallback": why, **facts}


def given_threshold(probability: float) -> dict[str, Any]:
    """Return a threshold that was set by hand; at 0 and 1 it has no finite logit."""
    return {"logit": _finite_logit(probability), "probability": probability, "given": True}


def _finite_logit(probability: float) -> float | None:
    inside = 0 < probability < 1
    return float(np.log(probability) - np.log1p(-probability)) if inside else None


def _at(threshold: float) -> dict[str, float]:
    return {"logit": threshold, "probability": float(sigmoid(np.array([threshold]))[0])}


def _reached(cutoffs: Cutoffs, threshold: float) -> dict[str, float | None]:
    """Return sensitivity and specificity on the validation part, where both exist."""
    place = int((cutoffs.logits >= threshold).sum()) - 1
    hits, alarms = cutoffs.true_positives[place], cutoffs.false_positives[place]
    return {
        "sensitivity": float(hits / cutoffs.positives) if cutoffs.positives else None,
        "specificity": float(1 - alarms / cutoffs.negatives) if cutoffs.negatives else None,
    }
