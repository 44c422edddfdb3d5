"""Sixteen images of ten patients with one class: the data of many hand-checked numbers."""

from __future__ import annotations

import numpy as np

LABELS = np.array([1] * 6 + [0] * 10)
PATIENTS = np.array([0, 0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 9, 9])
SCORES = np.array([0.9, 0.8, 0.8, 0.6, 0.4, 0.3, 0.7, 0.6, 0.5, 0.4, 0.3, 0.3, 0.2, 0.2, 0.1, 0.1])
LOGITS = np.log(SCORES / (1 - SCORES))
KNOWN = np.ones(16, dtype=bool)
SITES = np.array([0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1])
