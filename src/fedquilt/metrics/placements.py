"""Placements: the AUC of a class, and how much each patient moves it.

A positive's placement is the share of negatives below it; a negative's is the share of positives
above it; a tie counts half. Summed over a patient's images and centred they are that patient's
influence on the AUC, and the sum of squared influences is the variance of the AUC. Influences of
two classes or two models are added and subtracted before they are squared, which gives the
variance of a macro average or of a difference. With one image per patient this is DeLong's
variance (DeLong 1988, Sun & Xu 2014), otherwise Obuchowski's for clustered data (1997) with one
factor for small samples instead of three, so that every sum of classes has a variance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import fsum, nan, sqrt
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ClassSize:
    """What a class can be judged on: annotated images and the patients they are of."""

    positives: int
    negatives: int
    positive_patients: int  # patients with a positive
    negative_patients: int  # patients with a negative

    @property
    def rarer_patients(self) -> int:
        return min(self.positive_patients, self.negative_patients)

    @property
    def is_testable(self) -> bool:
        """Whether the class has a positive and a negative, so that an AUC exists."""
        return self.positives > 0 and self.negatives > 0


@dataclass(frozen=True, eq=False)
class Influence:
    """The AUC of one class and each patient's influence on it.

    The influences are 0 where ``is_estimated`` is False: of one positive or one negative patient
    nobody can tell how much another one would differ.
    """

    auc: float  # NaN without positives or without negatives
    size: ClassSize
    of_patients: Floats  # (P,), 0 for a patient without a known entry
    of_images: Floats  # (known entries,), as if every image were of another patient

    @property
    def is_estimated(self) -> bool:
        return self.size.rarer_patients >= 2

    @cached_property
    def variance(self) -> float:
        """Of the AUC, with the images of a patient as one draw; NaN if it cannot be estimated."""
        return sum_of_squares(self.of_patients) if self.is_estimated else nan

    @cached_property
    def variance_of_images(self) -> float:
        """DeLong's variance, with every image as a draw of its own; NaN if it cannot be had."""
        enough = min(self.size.positives, self.size.negatives) >= 2
        return sum_of_squares(self.of_images) if enough else nan


def influence(
    scores: npt.NDArray[np.floating], positive: Mask, patients: Integers, patient_count: int
) -> Influence:
    """Judge one class on its known entries.

    Args:
        scores: (n,) of the known entries only, logits or any other scores.
        positive: (n,) whether the entry is positive; otherwise it is negative.
        patients: (n,) the patient of each entry, numbered below ``patient_count``.
        patient_count: of all patients, also of those without a known entry of this class.
    """
    size = class_size(positive, patients)
    if not size.is_testable:
        return Influence(nan, size, np.zeros(patient_count), np.zeros(len(scores)))
    m, n = size.positives, size.negatives
    # Twice the negatives below each positive, and twice the positives above each negative:
    # integers, so that no result depends on the order of rows.
    ordered_negatives, ordered_positives = np.sort(scores[~positive]), np.sort(scores[positive])
    doubled = np.empty(len(scores), dtype=np.int64)
    doubled[positive] = doubled_ranks(ordered_negatives, scores[positive])
    doubled[~positive] = 2 * m - doubled_ranks(ordered_positives, scores[~positive])
    total = int(doubled[positive].sum())
    of_patients = np.zeros(patient_count)
    of_images = np.zeros(len(scores))
    for kind, others, own, owners in (
        (positive, n, m, size.positive_patients),
        (~positive, m, n, size.negative_patients),
    ):
        scale = 2.0 * own * own * others
        sums = np.bincount(patients[kind], doubled[kind], patient_count)
        counts = np.bincount(patients[kind], minlength=patient_count)
        of_patients += _small_sample(owners) * (own * sums - counts * float(total)) / scale
        of_images[kind] = _small_sample(own) * (own * doubled[kind] - float(total)) / scale
    if size.rarer_patients < 2:
        of_patients[:] = 0
    return Influence(total / (2 * m * n), size, of_patients, of_images)


def class_size(positive: Mask, patients: Integers) -> ClassSize:
    """Count the known entries of a class and their patients."""
    with_positive, with_negative = (np.bincount(patients[k]) > 0 for k in (positive, ~positive))
    return ClassSize(
        positives=int(positive.sum()),
        negatives=int((~positive).sum()),
        positive_patients=int(with_positive.sum()),
        negative_patients=int(with_negative.sum()),
    )


def mean_influence(influences: Sequence[Influence]) -> Influence:
    """The mean AUC of several models on the same entries, e.g. of several seeds."""
    first = influences[0]
    if len(influences) == 1:
        return first
    return Influence(
        fsum(each.auc for each in influences) / len(influences),
        first.size,
        np.mean([each.of_patients for each in influences], axis=0),
        np.mean([each.of_images for each in influences], axis=0),
    )


def doubled_ranks(ordered: npt.NDArray[np.generic], values: npt.NDArray[np.generic]) -> Integers:
    """Twice the number of ``ordered`` values below each value; an equal one counts once."""
    below = np.searchsorted(ordered, values, side="left")
    return np.asarray(below + np.searchsorted(ordered, values, side="right"), dtype=np.int64)


def sum_of_squares(values: Floats) -> float:
    """Exactly rounded, so that it does not depend on the order of values."""
    return fsum((values * values).tolist())


def _small_sample(count: int) -> float:
    return sqrt(count / (count - 1)) if count > 1 else 0.0
