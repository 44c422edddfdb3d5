"""Batch norm's statistics as moments: their mean over clients is that of the pooled images."""

from __future__ import annotations

from torch import Tensor

from fedquilt.core.tree import Weights

MEAN, VARIANCE = ".running_mean", ".running_var"


def second_moments(weights: Weights) -> Weights:
    """Each variance v becomes v + mean^2, in float64; everything else stays as it is."""
    return {
        name: value.double() + _mean_of(name, weights).square()
        if name.endswith(VARIANCE)
        else value
        for name, value in weights.items()
    }


def variances(moments: Weights) -> Weights:
    """The inverse: after a weighted mean, by the law of total variance."""
    return {
        name: (value - _mean_of(name, moments).square()).clamp(min=0).float()
        if name.endswith(VARIANCE)
        else value
        for name, value in moments.items()
    }


def _mean_of(name: str, weights: Weights) -> Tensor:
    return weights[name.removesuffix(VARIANCE) + MEAN].double()
