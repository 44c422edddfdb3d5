"""How far an image lies from those a model was trained on, and from where on that is far.

The Mahalanobis distance with the variances of the widest directions, and one variance for all
others (probabilistic PCA; Tipping and Bishop, 1999). "Far" begins at a quantile of the training
images' own distances, each measured by the images of the other folds: an image that was fitted is
too close to itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

DIRECTIONS = 32
FOLDS = 5
QUANTILE = 0.99
FEWEST = 50  # images; of fewer, a quantile of 99 % says nothing
NEGLIGIBLE = 1e-6  # of the mean variance: of directions in which no training image differs


@dataclass(frozen=True, eq=False)
class TrainingDistance:
    """Where the training images lie in a space of d numbers."""

    mean: Floats  # (d,)
    directions: Floats  # (k, d), orthonormal
    variances: Floats  # (k,)
    rest: float  # the variance of every other direction; infinite if there is none

    def of(self, numbers: Floats) -> Floats:
        """(N,) distances of (N, d) numbers."""
        offset = numbers - self.mean
        along = offset @ self.directions.T
        beside = np.maximum((offset**2).sum(1) - (along**2).sum(1), 0)
        distances: Floats = np.sqrt((along**2 / self.variances).sum(1) + beside / self.rest)
        return distances


def fit_distance(numbers: Floats) -> TrainingDistance:
    """Fit to (N, d) numbers of training images."""
    count, size = numbers.shape
    mean = numbers.mean(0)
    offset = numbers - mean
    kept = min(DIRECTIONS, size, max(1, (count - 1) // 4))
    if count < size:  # the smaller of two matrices with the same eigenvalues
        found, vectors = np.linalg.eigh(offset @ offset.T)
        vectors = offset.T @ vectors / np.sqrt(np.maximum(found, np.finfo(float).tiny))
    else:
        found, vectors = np.linalg.eigh(offset.T @ offset)
    widest = np.argsort(found)[::-1][:kept]
    total = float((offset**2).sum()) / count
    least = max(NEGLIGIBLE * total / size, np.finfo(np.float32).tiny)
    variances = np.maximum(found[widest] / count, least)
    left = total - float(variances.sum())
    rest = max(left / (size - kept), least) if kept < size else np.inf
    return TrainingDistance(mean, np.ascontiguousarray(vectors[:, widest].T), variances, rest)


def far_from(numbers: Floats, patients: Sequence[str] | None) -> float:
    """Return the distance beyond which an image is far: a quantile over the images of all folds.

    All images of a patient are in one fold: they are alike.
    """
    fold_of = _folds(len(numbers), patients)
    distances = np.empty(len(numbers))
    for fold in np.unique(fold_of):
        here = fold_of == fold
        distances[here] = fit_distance(numbers[~here]).of(numbers[here])
    return float(np.quantile(distances, QUANTILE, method="higher"))


def _folds(count: int, patients: Sequence[str] | None) -> npt.NDArray[np.int64]:
    if patients is None:
        return np.arange(count) % FOLDS
    number_of = {name: place for place, name in enumerate(dict.fromkeys(patients))}
    return np.array([number_of[name] % FOLDS for name in patients])
