"""Averages over classes, and policies for classes where a metric is undefined (NaN)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import fsum, isnan, nan
from typing import Literal, TypeAlias

from fedquilt.core.errors import UserError

ZeroDivision: TypeAlias = (
    float | Literal["nan", "skip"]
)  # for precision, recall and F1; a number is 0 or 1
Undefined: TypeAlias = Literal["skip", "zero"]  # for AUC, AP and BACC

# Class average -> the metric per class it is the mean of.
AVERAGED_METRIC = {
    "bacc": "bacc",
    "macro_auc": "auc",
    "map": "ap",
    "class_precision": "precision",
    "class_recall": "recall",
    "macro_f1": "f1",
}


def check_policies(zero_division: ZeroDivision, undefined: Undefined) -> None:
    if zero_division not in (0, 1, "nan", "skip"):
        raise UserError(f"zero_division must be 0, 1, 'nan' or 'skip', found {zero_division!r}")
    if undefined not in ("skip", "zero"):
        raise UserError(f"undefined must be 'skip' or 'zero', found {undefined!r}")


def mean(values: Iterable[float]) -> float:
    """Exactly rounded mean, independent of the order of values; NaN without values."""
    numbers = list(values)
    return fsum(numbers) / len(numbers) if numbers else nan


def defined_only(values: Iterable[float]) -> list[float]:
    return [value for value in values if not isnan(value)]


def or_else(value: float, substitute: float) -> float:
    return substitute if isnan(value) else value


def substitute_for(policy: ZeroDivision | Undefined) -> float:
    """Return the number that replaces an undefined value; NaN if the policy has none."""
    if policy == "zero":
        return 0.0
    return nan if isinstance(policy, str) else float(policy)


def class_averages(
    per_class: Mapping[str, Sequence[float]], zero_division: ZeroDivision, undefined: Undefined
) -> dict[str, float]:
    """Return every average named in ``AVERAGED_METRIC``."""
    averages = {}
    for name, metric in AVERAGED_METRIC.items():
        policy = undefined if metric in ("auc", "ap", "bacc") else zero_division
        values: Sequence[float] = per_class[metric]
        if name == "bacc" and undefined == "zero":
            values = _bacc_with_zeros(per_class)
        averages[name] = _average(values, policy)
    return averages


def _average(values: Sequence[float], policy: ZeroDivision | Undefined) -> float:
    if policy == "skip":
        return mean(defined_only(values))
    return mean(or_else(value, substitute_for(policy)) for value in values)


def _bacc_with_zeros(per_class: Mapping[str, Sequence[float]]) -> list[float]:
    """BACC with an undefined recall or specificity set to 0, and the other half kept."""
    pairs = zip(per_class["recall"], per_class["specificity"])
    return [(or_else(recall, 0.0) + or_else(specificity, 0.0)) / 2 for recall, specificity in pairs]
