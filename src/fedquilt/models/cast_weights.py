"""A step's bfloat16 weights, cast all at once: autocast takes two calls for every layer instead."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from fedquilt.core.tree import Weights, copies_of

Layer: TypeAlias = nn.Conv2d | nn.Linear
LAYERS = (nn.Conv2d, nn.Linear)  # these very classes: others may use their weights as they like


class _CastTogether(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *weights: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        return tuple(copies_of(weights, torch.bfloat16))

    @staticmethod
    @once_differentiable
    def backward(_ctx: Any, *slopes: Tensor | None) -> tuple[Tensor | None, ...]:
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
    layers = [layer for layer in _layers(network).values() if id(layer.weight) in wanted]
    casts = _CastTogether.apply(*(layer.weight for layer in layers)) if layers else ()
    with _computing(layers, [layer.weight for layer in layers], casts):
        yield


@contextmanager
def cast_lent(network: nn.Module, lent: Weights, dtype: torch.dtype) -> Iterator[None]:
    """Likewise for weights that ``network`` is lent within it, whose gradients nobody asks for."""
    found = [(layer, lent.get(f"{place}.weight")) for place, layer in _layers(network).items()]
    cast = [(layer, it) for layer, it in found if it is not None and it.dtype == torch.float32]
    weights = [weight for _, weight in cast]
    with _computing([layer for layer, _ in cast], weights, copies_of(weights, dtype)):
        yield


def _layers(network: nn.Module) -> dict[str, Layer]:
    return {
        place: layer
        for place, layer in network.named_modules()
        if isinstance(layer, Layer) and type(layer) in LAYERS
    }


@contextmanager
def _computing(
    layers: Sequence[Layer], weights: Sequence[Tensor], casts: Sequence[Tensor]
) -> Iterator[None]:
    """Within it, each layer computes with its cast, as long as its weight is the one given.

    Who reads a layer's weight instead of calling the layer, as some heads do, finds it uncast.
    """
    for layer, weight, cast in zip(layers, weights, casts):
        layer.__dict__["forward"] = partial(_forward, layer, weight, cast)
    try:
        yield
    finally:
        for layer in layers:
            del layer.__dict__["forward"]


def _forward(layer: Layer, weight: Tensor, cast: Tensor, values: Tensor) -> Tensor:
    # Somebody may have lent the network other weights for this call.
    used = cast if layer.weight is weight else layer.weight
    if isinstance(layer, nn.Linear):
        return F.linear(values, used, layer.bias)
    output: Tensor = layer._conv_forward(values, used, layer.bias)
    return output
