"""Thresholds of a class: the possible ones with their counts, and the one that a rule chooses.

A class is called present where its logit is at or above the threshold. Possible thresholds are
the distinct scores, or the cell edges of a histogram, and +inf, at which nothing is called.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedquilt.metrics.threshold_rules import ThresholdRule

Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]

MIN_PATIENTS = 10  # of each kind that a rule needs; with fewer a threshold is mostly chance
SAME_COST = 1e-12  # costs are sums of floats: smaller differences are ties


@dataclass(frozen=True, eq=False)
class Cutoffs:
    """Every possible threshold of one class, highest first, with what it calls present."""

    logits: Floats  # (K,), the first is +inf
    true_positives: Floats  # (K,) counts; of spread histograms not whole numbers
    false_positives: Floats

    @property
    def positives(self) -> float:
        return float(self.true_positives[-1])

    @property
    def negatives(self) -> float:
        return float(self.false_positives[-1])

    def sensitivity(self) -> Floats:
        return self.true_positives / self.positives

    def specificity(self) -> Floats:
        return (self.negatives - self.false_positives) / self.negatives


def cutoffs_of_scores(scores: Floats, labels: NDArray[np.integer], known: Bools) -> Cutoffs:
    """Return the cutoffs of one class; entries that are not known are left out."""
    kept = scores[known].astype(np.float64)
    positive = labels[known] == 1
    order = np.argsort(-kept, kind="stable")
    ranked, hits = kept[order], positive[order]
    is_last = np.append(ranked[1:] != ranked[:-1], True) if len(ranked) else np.zeros(0, bool)
    true_positives = np.cumsum(hits)[is_last].astype(np.float64)
    false_positives = np.cumsum(~hits)[is_last].astype(np.float64)
    return Cutoffs(
        np.concatenate(([np.inf], ranked[is_last])),
        np.concatenate(([0.0], true_positives)),
        np.concatenate(([0.0], false_positives)),
    )


def choose(rule: ThresholdRule, cutoffs: Cutoffs) -> int:
    """Return the position of the threshold that a fitted rule chooses.

    Of equally good thresholds the larger one is chosen: it has fewer false alarms.
    """
    if rule.kind == "sensitivity":
        return int(np.argmax(cutoffs.sensitivity() >= rule.target))  # the first that reaches it
    if rule.kind == "specificity":
        return int(np.flatnonzero(cutoffs.specificity() >= rule.target)[-1])
    return int(np.argmax(_gain(rule, cutoffs)))  # the first of equals, so the larger threshold


def _gain(rule: ThresholdRule, cutoffs: Cutoffs) -> Floats:
    hits, alarms = cutoffs.true_positives, cutoffs.false_positives
    if rule.kind == "youden":  # sensitivity + specificity - 1, times both counts: whole numbers
        return hits * cutoffs.negatives - alarms * cutoffs.positives
    if rule.kind == "f1":
        return 2 * hits / (hits + alarms + cutoffs.positives)
    if rule.kind == "cost":
        cost = expected_cost(rule, cutoffs)
        return -np.where(cost <= cost.min() + SAME_COST, cost.min(), cost)
    raise ValueError(f"the rule {rule.text!r} chooses nothing: it is not fitted")


def expected_cost(rule: ThresholdRule, cutoffs: Cutoffs) -> Floats:
    """Return the cost per image of misses and false alarms at every threshold."""
    prevalence = rule.prevalence
    if prevalence is None:
        prevalence = cutoffs.positives / (cutoffs.positives + cutoffs.negatives)
    missed = prevalence * (1 - cutoffs.sensitivity())
    alarms = (1 - prevalence) * (1 - cutoffs.specificity())
    return rule.cost_of_miss * missed + rule.cost_of_alarm * alarms


def cheapest_probability(rule: ThresholdRule) -> float:
    """Return the calibrated probability at which a miss costs as much as a false alarm."""
    return rule.cost_of_alarm / (rule.cost_of_alarm + rule.cost_of_miss)


def reason_not_to_fit(
    rule: ThresholdRule,
    positive_patients: int,
    negative_patients: int,
    auc_interval: tuple[float, float] | None,
) -> str | None:
    """Return why the rule must not be fitted for a class, or None if it may.

    Args:
        rule: a fitted rule.
        positive_patients: patients with a known positive (images, if patients are unknown).
        negative_patients: patients with a known negative.
        auc_interval: of the class on the same entries; None if it is undefined.
    """
    if positive_patients < MIN_PATIENTS:
        return f"{positive_patients} positive patients; at least {MIN_PATIENTS} are needed"
    if rule.kind != "sensitivity" and negative_patients < MIN_PATIENTS:
        return f"{negative_patients} negative patients; at least {MIN_PATIENTS} are needed"
    if rule.kind in ("youden", "f1"):
        if auc_interval is None:
            return "its AUC is undefined"
        low, high = auc_interval
        if low <= 0.5:
            return (
                f"its AUC may be 0.5 or less (95 % interval {low:.3f} to {high:.3f}): the model "
                "may know nothing of this class"
            )
    return None
