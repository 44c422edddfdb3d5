"""A network of one weight, trained by plain gradient descent on a given function: for equations."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from fedquilt.core.payload import Update
from fedquilt.core.tree import Weights
from fedquilt.data.client_data import ClientData
from fedquilt.models.network import Layout
from fedquilt.training.method import Local, Method, State

LAYOUT = Layout(body=("w",), head=(), buffers=())
Objective = Callable[[Tensor], Tensor]


class OneWeight(nn.Module):
    def __init__(self, value: float) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([value], dtype=torch.float64))


def one_image() -> ClientData:
    return ClientData(
        name="site",
        images=torch.zeros(1, 1, 2, 2, dtype=torch.uint8),
        indices=torch.arange(1),
        labels=torch.zeros(1, 1, dtype=torch.uint8),
        known=torch.ones(1, 1, dtype=torch.bool),
    )


def local_of(model: nn.Module, received: State, state: State) -> Local:
    """A client that holds one image and trains this network."""
    return Local(
        round_index=0,
        received=received,
        state=state,
        data=one_image(),
        layout=LAYOUT,
        model=model,  # type: ignore[arg-type]
        forward=None,  # type: ignore[arg-type]
        predict=None,  # type: ignore[arg-type]
        generator=torch.Generator(),
    )


def train_one_weight(
    method: Method,
    objective: Objective,
    received: State,
    state: State,
    *,
    steps: int,
    lr: float,
    extra: Callable[[Local], Tensor] | None = None,
) -> tuple[Weights, Update, State]:
    """Gradient descent on ``objective`` plus ``extra``, through the method's hooks."""
    model = OneWeight(received["weights"]["w"].item())
    local = local_of(model, received, state)
    local.state = method.begin(local)
    for _ in range(steps):
        model.zero_grad()
        loss = objective(model.w).sum() + (0 if extra is None else extra(local))
        loss.backward()
        assert model.w.grad is not None
        gradients, local.state = method.correct_gradients(local, {"w": model.w.grad})
        with torch.no_grad():
            model.w.sub_(lr * gradients["w"])
    weights = {"w": model.w.detach().clone()}
    update, kept = method.finish(local, weights, steps)
    return weights, update, kept
