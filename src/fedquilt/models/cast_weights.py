"""A step's bfloat16 weights, cast all at once: autocast takes two calls for every layer instead."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from fedquilt.tree import Weights, copies_of

Layer: TypeAlias = nn.Conv2d | nn.Linear
LAYERS = (nn.Conv2d, nn.Linear)  # these very classes: others may use their weights as they like


class _CastTogether(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *weights: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        return tuple(copies_of(weights, torch.bfloat16))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *slopes: Tensor | None) -> tuple[Tensor | None, ...]:
        reached = [slope for slope in slopes if slope is not None]
        wide = iter(copies_of(reached, torch.float32))
        return tuple(None if slope is None else next(wide) for slope in slopes)


@contextmanager
def cast_together(network: nn.Module, weights: Iterable[Tensor]) -> Iterator[None]:
    """Within it, layers whose weight is one of these compute with copies cast in one go.

    To the last bit it is what autocast does. Only the weights that are trained should be given: a
    gradient of one of them goes through the cast of all.
    """
    wanted = {id(weight) for weight in weights if weight.dtype == torch.float32}
    layers = [layer for layer in network.modules() if isinstance(layer, Layer)]
    layers = [layer for layer in layers if type(layer) in LAYERS and id(layer.weight) in wanted]
    casts = _CastTogether.apply(*(layer.weight for layer in layers)) if layers else ()
    for layer, cast in zip(layers, casts):
        layer.__dict__["forward"] = partial(_forward, layer, layer.weight, cast)
    try:
        yield
    finally:
        for layer in layers:
            del layer.__dict__["forward"]


def cast_to_lend(network: nn.Module, weights: Weights, dtype: torch.dtype) -> Weights:
    """Weights to lend to a network for a call under autocast, cast as it would, but in one go."""
    names = [f"{place}.weight" for place, each in network.named_modules() if type(each) in LAYERS]
    names = [name for name in names if name in weights and weights[name].dtype == torch.float32]
    casts = copies_of([weights[name] for name in names], dtype)
    return {**weights, **dict(zip(names, casts))}


def _forward(layer: Layer, weight: Tensor, cast: Tensor, values: Tensor) -> Tensor:
    # Somebody may have lent the network other weights for this call.
    used = cast if layer.weight is weight else layer.weight
    if isinstance(layer, nn.Linear):
        return F.linear(values, used, layer.bias)
    output: Tensor = layer._conv_forward(values, used, layer.bias)
    return output
