"""Tests of two models on the same images, and corrections for testing several classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import erfc, isnan, nan, sqrt
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from fedquilt.metrics.intervals import FEW_PATIENTS, LEVEL, quantile
from fedquilt.metrics.placements import (
    Floats,
    Influence,
    Integers,
    Mask,
    doubled_ranks,
    sum_of_squares,
)

EXACT_PATIENTS = 12  # up to this number all swaps are tried
DRAWS = 10_000
BLOCK = 500  # draws at a time, to bound memory
EXACT_IN_FLOAT32 = 2**24
PairedTest: TypeAlias = Literal["paired z", "permutation"]


@dataclass(frozen=True)
class Difference:
    """One model's AUC minus another's, on the same images; NaN where undefined."""

    value: float
    error: float  # standard error
    low: float
    high: float
    p: float
    test: PairedTest = "paired z"


def normal_difference(value: float, variance: float, level: float = LEVEL) -> Difference:
    """Test a difference whose estimate is taken to be normal; without variance there is no p."""
    if isnan(value) or isnan(variance):
        return Difference(value, nan, nan, nan, nan)
    error = sqrt(variance)
    if error == 0:
        return Difference(value, 0.0, nan, nan, 1.0 if value == 0 else nan)
    half = quantile(level) * error
    p = erfc(abs(value) / error / sqrt(2))
    return Difference(value, error, value - half, value + half, p)


def auc_difference(one: Influence, other: Influence, level: float = LEVEL) -> Difference:
    """Test whether two models rank one class equally well (DeLong's test, clustered)."""
    if not one.size.is_testable:
        return Difference(nan, nan, nan, nan, nan)
    variance = sum_of_squares(one.of_patients - other.of_patients) if one.is_estimated else nan
    return normal_difference(one.auc - other.auc, variance, level)


def needs_permutation(influence: Influence) -> bool:
    """Whether a class has too few patients for the normal distribution."""
    return influence.size.is_testable and influence.size.rarer_patients < FEW_PATIENTS


def swaps(
    one: npt.NDArray[np.floating],
    other: npt.NDArray[np.floating],
    positive: Mask,
    patients: Integers,
) -> Integers:
    """What each patient adds to the difference of two AUCs, times 4 m n; negated when swapped.

    Scores become ranks first, because raw scores of two networks cannot be exchanged. To swap the
    two models' scores of a patient changes the difference of the AUCs by an amount that does not
    depend on which other patients are swapped: a pair of images of a swapped and an unswapped
    patient compares the ranks of the two models crosswise, and these terms add up per image.
    """
    first, second = (doubled_ranks(np.sort(scores), scores) for scores in (one, other))
    added = np.empty(len(positive), dtype=np.int64)
    for kind, sign in ((positive, 1), (~positive, -1)):
        rivals = np.sort(np.concatenate([first[~kind], second[~kind]]))
        below = doubled_ranks(rivals, first[kind]) - doubled_ranks(rivals, second[kind])
        added[kind] = sign * below
    # A negative below its rivals and a positive above them are both right.
    _, place = np.unique(patients, return_inverse=True)
    totals = np.zeros(place.max() + 1 if len(place) else 0, dtype=np.int64)
    np.add.at(totals, place, added)
    return totals


def permutation_p_values(of_classes: Sequence[Integers], seed: int = 0) -> list[float]:
    """Two-sided p per class of :func:`swaps`: the share of swaps with as large a difference.

    All swaps of up to 12 patients are tried; of more, 10,000 are drawn and p is (1 + k) / (1 + N).
    """
    p_values = [nan] * len(of_classes)
    drawn: dict[int, Floats] = {}
    for place, totals in enumerate(of_classes):
        moving = np.sort(totals[totals != 0])  # so that the order of patients changes no draw
        if len(totals) <= EXACT_PATIENTS or len(moving) <= EXACT_PATIENTS:
            p_values[place] = _exact_p(moving)
        else:
            drawn[place] = moving.astype(np.float64)
    for place, p in zip(drawn, _drawn_p([*drawn.values()], seed)):
        p_values[place] = p
    return p_values


def _exact_p(totals: Integers) -> float:
    sums = np.zeros(1, dtype=np.int64)
    for total in totals:
        sums = np.concatenate([sums + total, sums - total])
    return float((np.abs(sums) >= abs(int(totals.sum()))).mean())


def _drawn_p(of_classes: Sequence[Floats], seed: int) -> list[float]:
    if not of_classes:
        return []
    longest = max(map(len, of_classes))
    largest = max(np.abs(totals).sum() for totals in of_classes)
    # Sums of integers: exact in either precision, and float32 is twice as fast.
    precision = np.float32 if largest < EXACT_IN_FLOAT32 else np.float64
    table = np.zeros((longest, len(of_classes)), dtype=precision)
    for column, totals in enumerate(of_classes):
        table[: len(totals), column] = totals
    observed = np.abs(table.sum(axis=0))
    reached = np.zeros(len(of_classes), dtype=np.int64)
    generator = np.random.default_rng(seed)
    for _ in range(0, DRAWS, BLOCK):
        bits = np.frombuffer(generator.bytes(BLOCK * (-(-longest // 8))), dtype=np.uint8)
        signs = np.unpackbits(bits.reshape(BLOCK, -1), axis=1, count=longest).astype(precision)
        differences = 2 * (signs @ table) - table.sum(axis=0)
        reached += (np.abs(differences) >= observed).sum(axis=0)
    return [float(p) for p in (1 + reached) / (1 + DRAWS)]


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust for testing several hypotheses at once (Holm 1979); NaN stays and is not counted."""
    defined = sorted((p, place) for place, p in enumerate(p_values) if not isnan(p))
    adjusted, largest = [nan] * len(p_values), 0.0
    for rank, (p, place) in enumerate(defined):
        largest = max(largest, min(1.0, (len(defined) - rank) * p))
        adjusted[place] = largest
    return adjusted


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Adjust for the expected share of false discoveries (1995); NaN stays and is not counted."""
    defined = sorted(((p, place) for place, p in enumerate(p_values) if not isnan(p)), reverse=True)
    adjusted, smallest = [nan] * len(p_values), 1.0
    for position, (p, place) in enumerate(defined):
        smallest = min(smallest, len(defined) / (len(defined) - position) * p)
        adjusted[place] = smallest
    return adjusted
