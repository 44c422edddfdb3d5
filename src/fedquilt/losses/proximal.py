"""Proximal terms: squared distances between weights and an anchor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class _SumOfSquares(torch.autograd.Function):
    """Sum of squares of ``weights - anchors``, each times its factor, in fused launches.

    One launch per tensor cost more than the rest of a ResNet-18's training step.
    """

    @staticmethod
    def forward(ctx: Any, anchors: list[Tensor], factors: list[Tensor], *weights: Tensor) -> Tensor:
        gaps = torch._foreach_sub(weights, anchors)
        ctx.factors = factors
        ctx.save_for_backward(*gaps)
        if factors:
            gaps = torch._foreach_mul(gaps, torch._foreach_sqrt(factors))
        return torch.stack(torch._foreach_norm(gaps)).square().sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Twice the gaps: 0 where a gap is 0, where the gradient of the norm would be NaN."""
        grads = torch._foreach_mul(ctx.saved_tensors, 2 * grad)
        if ctx.factors:
            grads = torch._foreach_mul(grads, ctx.factors)
        return None, None, *grads


def squared_distance(named: Iterable[tuple[str, Tensor]], anchor: Mapping[str, Tensor]) -> Tensor:
    """Sum over the named weights of the squared difference from the anchor's."""
    weights = dict(named)
    return _distance([anchor[name] for name in weights], [], [*weights.values()])


def weighted_squared_distance(
    weights: Mapping[str, Tensor], anchor: Mapping[str, Tensor], importance: Mapping[str, Tensor]
) -> Tensor:
    """Sum over the anchor's names of importance * squared difference; importance is at least 0."""
    factors = [importance[name] for name in anchor]
    return _distance([*anchor.values()], factors, [weights[name] for name in anchor])


def _distance(anchors: list[Tensor], factors: list[Tensor], weights: list[Tensor]) -> Tensor:
    distance: Tensor = _SumOfSquares.apply(anchors, factors, *weights)
    return distance
