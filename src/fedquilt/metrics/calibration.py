"""Calibration of one class: from the network's logit to a calibrated probability.

Platt scaling is fitted by Newton's method on five sums per class. Sums over sites are sums over
images, so the same code serves one data set and a federation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedquilt.core.wording import counted
from fedquilt.metrics.thresholds import Bools, Floats

Method = Literal["none", "platt", "temperature", "isotonic"]

MIN_ISOTONIC = 1000  # known entries; with fewer its steps follow chance
ITERATIONS = 100
CONVERGED = 1e-12
CLIP = 1e-7  # a probability of exactly 0 or 1 would make the log-loss infinite


@dataclass(frozen=True, eq=False)
class Outcomes:
    """Logits of one class and how many positives and negatives have each of them."""

    logits: Floats
    positives: Floats
    negatives: Floats

    @property
    def positive_count(self) -> float:
        return float(self.positives.sum())

    @property
    def negative_count(self) -> float:
        return float(self.negatives.sum())


def outcomes_of_scores(scores: Floats, labels: NDArray[np.integer], known: Bools) -> Outcomes:
    """Return one class's outcomes; entries that are not known are left out."""
    positive = (labels[known] == 1).astype(np.float64)
    return Outcomes(scores[known].astype(np.float64), positive, 1 - positive)


@dataclass(frozen=True)
class Line:
    """A calibrated logit is ``slope`` times the logit plus ``intercept`` (Platt, temperature)."""

    slope: float
    intercept: float

    def probabilities(self, logits: Floats) -> Floats:
        return sigmoid(self.slope * logits + self.intercept)

    def to_dict(self) -> dict[str, Any]:
        return {"slope": self.slope, "intercept": self.intercept}


@dataclass(frozen=True, eq=False)
class Steps:
    """Probabilities at some logits, with straight lines between them (isotonic)."""

    logits: Floats  # ascending
    values: Floats

    def probabilities(self, logits: Floats) -> Floats:
        return np.interp(logits, self.logits, self.values)

    def to_dict(self) -> dict[str, Any]:
        return {"logits": self.logits.tolist(), "probabilities": self.values.tolist()}


Calibrator = Line | Steps


def calibrator_from(stored: Mapping[str, Any]) -> Calibrator | None:
    """Return a class's stored calibrator; None if none was fitted."""
    if "slope" in stored:
        return Line(stored["slope"], stored["intercept"])
    if "logits" in stored:
        return Steps(np.array(stored["logits"]), np.array(stored["probabilities"]))
    return None


@dataclass(frozen=True)
class NewtonSums:
    """What one Newton step needs of any number of images: five numbers."""

    residual: float  # sum of p - y
    residual_logit: float  # sum of z (p - y)
    curvature: float  # sum of w = p (1 - p)
    curvature_logit: float  # sum of z w
    curvature_squared: float  # sum of z^2 w

    def __add__(self, other: NewtonSums) -> NewtonSums:
        return NewtonSums(
            self.residual + other.residual,
            self.residual_logit + other.residual_logit,
            self.curvature + other.curvature,
            self.curvature_logit + other.curvature_logit,
            self.curvature_squared + other.curvature_squared,
        )

    def step_from(self, line: Line) -> Line:
        """Return the line after one Newton step; raise ZeroDivisionError if all logits agree."""
        determinant = self.curvature_squared * self.curvature - self.curvature_logit**2
        slope = self.curvature * self.residual_logit - self.curvature_logit * self.residual
        intercept = (
            self.curvature_squared * self.residual - self.curvature_logit * self.residual_logit
        )
        return Line(line.slope - slope / determinant, line.intercept - intercept / determinant)


@dataclass(frozen=True)
class Targets:
    """What the probability of a positive and of a negative is fitted to."""

    positive: float = 1.0
    negative: float = 0.0


PLAIN = Targets()


def platt_targets(positives: float, negatives: float) -> Targets:
    """Return Platt's targets: few positives do not push probabilities to 0 and 1."""
    return Targets((positives + 1) / (positives + 2), 1 / (negatives + 2))


def newton_sums(outcomes: Outcomes, line: Line, targets: Targets = PLAIN) -> NewtonSums:
    z = outcomes.logits
    count = outcomes.positives + outcomes.negatives
    wanted = outcomes.positives * targets.positive + outcomes.negatives * targets.negative
    p = line.probabilities(z)
    residual, weight = count * p - wanted, count * p * (1 - p)
    columns = (residual, z * residual, weight, z * weight, z * z * weight)
    return NewtonSums(*(math.fsum(column) for column in columns))


def fit_platt(outcomes: Outcomes, targets: Targets | None = None) -> Line | None:
    """Fit slope and intercept; None if they do not exist, as when all logits agree.

    Args:
        outcomes: of one class.
        targets: None: Platt's. ``PLAIN`` gives the plain likelihood.
    """
    if len(np.unique(outcomes.logits)) < 2:
        return None
    aims = targets
    if aims is None:
        aims = platt_targets(outcomes.positive_count, outcomes.negative_count)

    def step(line: Line) -> Line:
        return newton_sums(outcomes, line, aims).step_from(line)

    return _descend(outcomes, aims, Line(1.0, 0.0), step)


def fit_temperature(outcomes: Outcomes) -> Line | None:
    """Fit one divisor of the logits: it changes how sure the model is, not where 0.5 lies."""
    if not outcomes.logits.any():
        return None

    def step(line: Line) -> Line:
        sums = newton_sums(outcomes, line)
        return Line(line.slope - sums.residual_logit / sums.curvature_squared, 0.0)

    return _descend(outcomes, PLAIN, Line(1.0, 0.0), step)


def fit_offset(outcomes: Outcomes) -> float | None:
    """Fit the intercept alone, with slope 1: calibration in the large."""

    def step(line: Line) -> Line:
        sums = newton_sums(outcomes, line)
        return Line(1.0, line.intercept - sums.residual / sums.curvature)

    found = _descend(outcomes, PLAIN, Line(1.0, 0.0), step)
    return None if found is None else found.intercept


def _descend(
    outcomes: Outcomes, targets: Targets, line: Line, step: Callable[[Line], Line]
) -> Line | None:
    """Repeat Newton steps, each halved while it raises the loss; None without a minimum.

    Close to the minimum the loss rises and falls by rounding alone, which halves no step.
    """
    loss = _loss(outcomes, line, targets)
    for _ in range(ITERATIONS):
        try:
            full = step(line)
        except ZeroDivisionError:
            return None
        share, change = 1.0, (full.slope - line.slope, full.intercept - line.intercept)
        if not all(map(math.isfinite, change)):
            return None
        while True:
            moved = Line(line.slope + share * change[0], line.intercept + share * change[1])
            lower = _loss(outcomes, moved, targets)
            if lower <= loss + CONVERGED * (1 + abs(loss)) or share < CONVERGED:
                break
            share /= 2
        if max(map(abs, change)) <= CONVERGED * (1 + abs(line.slope) + abs(line.intercept)):
            return moved
        if share < CONVERGED:
            return line  # no step lowers the loss: rounding is all that is left
        line, loss = moved, lower
    return None


def _loss(outcomes: Outcomes, line: Line, targets: Targets) -> float:
    z = line.slope * outcomes.logits + line.intercept
    wanted = outcomes.positives * targets.positive + outcomes.negatives * targets.negative
    count = outcomes.positives + outcomes.negatives
    return math.fsum(count * np.logaddexp(0, z) - wanted * z)


def fit_isotonic(outcomes: Outcomes) -> Steps:
    """Fit the steps that never fall: neighbouring scores in the wrong order share their mean."""
    logits, place = np.unique(outcomes.logits, return_inverse=True)
    positives = np.bincount(place, outcomes.positives)
    counts = np.bincount(place, outcomes.positives + outcomes.negatives)
    blocks: list[tuple[float, float, int, int]] = []  # positives, all, first and last logit
    for number, (hits, all_) in enumerate(zip(positives.tolist(), counts.tolist())):
        block = (hits, all_, number, number)
        while blocks and blocks[-1][0] * block[1] >= block[0] * blocks[-1][1]:
            before = blocks.pop()
            block = (before[0] + block[0], before[1] + block[1], before[2], block[3])
        blocks.append(block)
    ends = [(logits[place], b[0] / b[1]) for b in blocks for place in sorted({b[2], b[3]})]
    return Steps(np.array([z for z, _ in ends]), np.array([p for _, p in ends]))


def reason_not_to_calibrate(
    method: Method, positive_patients: int, negative_patients: int, entries: int, minimum: int
) -> str | None:
    """Return why a class must not be calibrated, or None if it may."""
    for kind, patients in (("positive", positive_patients), ("negative", negative_patients)):
        if patients < minimum:
            return f"{counted(patients, f'{kind} patient')}; at least {minimum} are needed"
    if method == "isotonic" and entries < MIN_ISOTONIC:
        return f"{entries} annotated images; isotonic needs at least {MIN_ISOTONIC}"
    return None


def sigmoid(logits: Floats) -> Floats:
    return np.exp(-np.logaddexp(0, -logits))


def logit(probabilities: Floats | Sequence[float] | float) -> Floats:
    """Return the logits; probabilities are kept ``CLIP`` away from 0 and 1."""
    p = np.clip(np.asarray(probabilities, dtype=np.float64), CLIP, 1 - CLIP)
    return np.log(p) - np.log1p(-p)
