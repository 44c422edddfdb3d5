"""Fused casts of weights: fewer casts, equal results, layers restored afterwards."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from support.torch_calls import TorchCalls
from torch import Tensor, nn
from torch.func import functional_call

from fedquilt.models.cast_weights import cast_functional, cast_parameters

IMAGES = torch.rand(2, 1, 4, 4)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    convolutions = [nn.Conv2d(1, 3, 3), nn.Conv2d(3, 3, 2, bias=False)]
    return nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(3, 2))


def gradients(model: nn.Module) -> list[Tensor | None]:
    return [parameter.grad for parameter in model.parameters()]


def casts(model: nn.Module, fused: bool) -> int:
    model.zero_grad()
    context = cast_parameters(model, model.parameters()) if fused else nullcontext()
    with TorchCalls() as calls:
        with torch.autocast("cpu", torch.bfloat16), context:
            loss = model(IMAGES).sum()
        loss.backward()
    return calls.count["aten._to_copy.default"]


def test_every_weight_saves_two_casts() -> None:
    model = network()
    by_autocast = casts(model, fused=False)
    expected = [gradient.clone() for gradient in gradients(model) if gradient is not None]
    assert casts(model, fused=True) == by_autocast - 2 * 3
    for found, wanted in zip(gradients(model), expected):
        assert torch.equal(found, wanted)


def test_weights_of_a_functional_call_are_used() -> None:
    model = network()
    weights = {name: torch.zeros_like(weight) for name, weight in model.named_parameters()}
    with torch.autocast("cpu", torch.bfloat16), cast_parameters(model, model.parameters()):
        assert not functional_call(model, weights, (IMAGES,)).any()
        assert model(IMAGES).any()


class ReadingHead(nn.Module):
    """Calls a layer and also reads its weight; C-Tran's head only reads it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 2)

    def forward(self, values: Tensor) -> Tensor:
        return self.inner(values) + (values[:, None].float() * self.inner.weight).sum(2)


def test_weights_of_a_functional_call_are_cast_as_by_autocast_and_fused() -> None:
    model = network()
    model.append(nn.Linear(2, 3))
    model.append(ReadingHead())
    weights = {name: weight.detach() + 0.1 for name, weight in model.named_parameters()}
    counts, outputs = [], []
    for casting in (nullcontext(), cast_functional(model, weights, torch.bfloat16)):
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16), casting, TorchCalls() as calls:
            outputs.append(functional_call(model, weights, (IMAGES,)))
        counts.append(calls.count["aten._to_copy.default"])
    assert torch.equal(*outputs)
    assert counts[1] == counts[0] - 5
    assert all("forward" not in layer.__dict__ for layer in model.modules())


def test_a_functional_call_of_a_transformer_is_unchanged() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)).eval()
    weights = {name: weight.detach() * 1.1 for name, weight in model.named_parameters()}
    tokens, outputs = torch.rand(2, 3, 8), []
    for casting in (nullcontext(), cast_functional(model, weights, torch.bfloat16)):
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16), casting:
            outputs.append(functional_call(model, weights, (tokens,)))
    assert torch.equal(*outputs)


def test_a_gradient_of_the_head_alone_skips_the_body() -> None:
    model = network()
    head = [*model[-1].parameters()]
    with torch.autocast("cpu", torch.bfloat16), cast_parameters(model, head):
        loss = model(IMAGES).sum()
    with TorchCalls() as calls:
        loss.backward(inputs=head)
    assert not any("convolution_backward" in name for name in calls.count)
    assert [gradient is None for gradient in gradients(model)] == [True] * 3 + [False] * 2


def test_the_layers_are_restored_after_an_error() -> None:
    model = network()
    with pytest.raises(RuntimeError), cast_parameters(model, model.parameters()):
        model(torch.rand(2, 9, 4, 4))  # nine channels instead of one
    assert all("forward" not in layer.__dict__ for layer in model.modules())


def test_a_layer_that_is_not_called_has_no_gradient() -> None:
    model = network()
    with torch.autocast("cpu", torch.bfloat16), cast_parameters(model, model.parameters()):
        model[0](IMAGES).sum().backward()
    assert model[0].weight.grad is not None
    assert model[1].weight.grad is None
