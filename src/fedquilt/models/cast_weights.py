"""Cast all weights of a step to bfloat16 in one fused launch; autocast casts layer by layer."""

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
LAYERS = (nn.Conv2d, nn.Linear)  # exactly these: a subclass may use its weight differently


class _FusedCast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *weights: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        return tuple(copies_of(weights, torch.bfloat16))

    @staticmethod
    @once_differentiable
    def backward(_ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        present = [grad for grad in grads if grad is not None]
        wide = iter(copies_of(present, torch.float32))
        return tuple(None if grad is None else next(wide) for grad in grads)


@contextmanager
def cast_parameters(network: nn.Module, weights: Iterable[Tensor]) -> Iterator[None]:
    """Within this context, the layers with these weights compute with bfloat16 copies of them.

    The results are bitwise those of autocast. Pass only weights that are trained: the gradient of
    one of them passes through the cast of all.
    """
    wanted = {id(weight) for weight in weights if weight.dtype == torch.float32}
    layers = [layer for layer in _layers(network).values() if id(layer.weight) in wanted]
    casts = _FusedCast.apply(*(layer.weight for layer in layers)) if layers else ()
    with _computing(layers, [layer.weight for layer in layers], casts):
        yield


@contextmanager
def cast_functional(network: nn.Module, weights: Weights, dtype: torch.dtype) -> Iterator[None]:
    """The same for weights that ``functional_call`` puts into the network, without gradients."""
    found = [(layer, weights.get(f"{place}.weight")) for place, layer in _layers(network).items()]
    cast = [(layer, it) for layer, it in found if it is not None and it.dtype == torch.float32]
    given = [weight for _, weight in cast]
    with _computing([layer for layer, _ in cast], given, copies_of(given, dtype)):
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
    """Within this context, each layer computes with its cast while it has the given weight.

    Code that reads a layer's weight without calling the layer, as some heads do, gets it uncast.
    """
    for layer, weight, cast in zip(layers, weights, casts):
        layer.__dict__["forward"] = partial(_forward, layer, weight, cast)
    try:
        yield
    finally:
        for layer in layers:
            del layer.__dict__["forward"]


def _forward(layer: Layer, weight: Tensor, cast: Tensor, values: Tensor) -> Tensor:
    # functional_call may have put another weight into the layer for this call.
    used = cast if layer.weight is weight else layer.weight
    if isinstance(layer, nn.Linear):
        return F.linear(values, used, layer.bias)
    output: Tensor = layer._conv_forward(values, used, layer.bias)
    return output
