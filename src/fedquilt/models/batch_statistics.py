"""Batch-norm statistics as moments, so that averaging clients gives those of the pooled images."""

from __future__ import annotations

from torch import Tensor

from fedquilt.core.tree import Weights

MEAN, VARIANCE = ".running_mean", ".running_var"


def second_moments(weights: Weights) -> Weights:
    """Replace each variance v by v + mean^2, in float64; other entries are left unchanged."""
    return {
        name: value.double() + _mean_of(name, weights).square()
        if name.endswith(VARIANCE)
        else value
        for name, value in weights.items()
    }


def variances(moments: Weights) -> Weights:
    """Invert ``second_moments``, for instance after a weighted mean over clients."""
    return {
        name: (value - _mean_of(name, moments).square()).clamp(min=0).float()
        if name.endswith(VARIANCE)
        else value
        for name, value in moments.items()
    }


def _mean_of(name: str, weights: Weights) -> Tensor:
    return weights[name.removesuffix(VARIANCE) + MEAN].double()
