"""Distinct label vectors: images that share one are treated alike, so work is done once for all."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Positives = npt.NDArray[np.bool_]
Counts = npt.NDArray[np.int64]


def label_patterns(positives: Positives) -> tuple[Positives, Counts]:
    """The distinct rows (U, C) in lexicographic order, and which of them each image has (N,)."""
    packed, pattern_of = np.unique(np.packbits(positives, axis=1), axis=0, return_inverse=True)
    patterns = np.unpackbits(packed, axis=1, count=positives.shape[1]).astype(np.bool_)
    return patterns, pattern_of.reshape(-1).astype(np.int64)


def rarest_positive(patterns: Positives, frequency: Counts) -> Counts:
    """Each row's positive class of the lowest frequency; C for a row without positives."""
    rarity = np.argsort(frequency, kind="stable")  # equally rare: the first class
    rarest = rarity[patterns[:, rarity].argmax(axis=1)]
    return np.asarray(np.where(patterns.any(axis=1), rarest, patterns.shape[1]))
