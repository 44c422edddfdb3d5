"""Sixteen images of ten patients with three models' scores, worked out for the statistics.

Class 1 is annotated everywhere, class 2 in the first ten images only.
"""

from __future__ import annotations

import numpy as np

from fedquilt.metrics.labelled_images import LabelledImages
from fedquilt.metrics.placements import Floats, Influence, influence

POSITIVE = np.array([1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], dtype=bool)
PATIENTS = np.array([0, 0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 9, 9])
IMAGES = np.arange(16)  # every image a patient of its own
S = np.array([0.9, 0.8, 0.8, 0.6, 0.4, 0.3, 0.7, 0.6, 0.5, 0.4, 0.3, 0.3, 0.2, 0.2, 0.1, 0.1])
T = np.array([0.7, 0.9, 0.5, 0.5, 0.6, 0.2, 0.8, 0.4, 0.5, 0.3, 0.3, 0.1, 0.4, 0.2, 0.2, 0.1])
U = np.array([0.2, 0.9, 0.5, 0.1, 0.3, 0.2, 0.8, 0.4, 0.5, 0.3, 0.3, 0.1, 0.4, 0.2, 0.2, 0.1])
POSITIVE_2 = np.array([0, 1, 0, 0, 1, 0, 1, 0, 1, 0], dtype=bool)
S_2 = np.array([0.2, 0.6, 0.3, 0.1, 0.7, 0.4, 0.5, 0.2, 0.3, 0.6])
T_2 = np.array([0.3, 0.5, 0.3, 0.2, 0.6, 0.4, 0.7, 0.1, 0.4, 0.5])


def of(scores: Floats, patients: np.ndarray = IMAGES) -> Influence:
    """The influence on class 1."""
    return influence(scores, POSITIVE, patients, int(patients.max()) + 1)


def both_classes(garbage: float = 0.0) -> tuple[LabelledImages, Floats, Floats]:
    """Both classes as a table, with the scores of models A and B; blanks hold the garbage."""
    blank = np.full(6, garbage)
    labels = np.stack([POSITIVE, np.concatenate([POSITIVE_2, blank != 0])], axis=1)
    known = np.ones((16, 2), dtype=bool)
    known[10:, 1] = False
    images = LabelledImages.of(labels.astype(np.uint8), known, PATIENTS)
    one = np.stack([S, np.concatenate([S_2, blank])], axis=1)
    return images, one, np.stack([T, np.concatenate([T_2, blank])], axis=1)
