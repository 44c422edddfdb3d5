"""Probabilities where positives are more or less frequent than where a model was fitted."""

from __future__ import annotations

import numpy as np

from fedquilt.metrics.thresholds import Floats

ITERATIONS = 10_000
CONVERGED = 1e-12


def at_prior(probabilities: Floats, fitted: float, there: float) -> Floats:
    """Return the probabilities at a share of positives of ``there`` instead of ``fitted``."""
    odds = there / (1 - there) / (fitted / (1 - fitted))
    return probabilities * odds / (probabilities * odds + 1 - probabilities)


def estimate_prior(probabilities: Floats, fitted: float) -> float:
    """Estimate the share of positives among images without labels (Saerens et al. 2002, EM).

    It holds only if positives and negatives look as they did where the model was fitted.
    """
    prior = fitted
    for _ in range(ITERATIONS):
        new = float(np.mean(at_prior(probabilities, fitted, prior)))
        if not 0 < new < 1 or abs(new - prior) < CONVERGED:
            return new
        prior = new
    return prior
