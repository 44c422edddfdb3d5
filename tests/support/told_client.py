"""A client whose network gives set logits and remembers what it was told: for label states."""

from __future__ import annotations

import torch
from support.logit_client import holding
from torch import Tensor, nn

from fedquilt.core.tree import Weights
from fedquilt.data.batches import Batch
from fedquilt.models.network import Layout, Output
from fedquilt.training.method import Local, Method


class Told(nn.Module):
    """The logits are its weights, whatever it is told."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = nn.Parameter(logits.clone())
        self.states: list[list[int]] = []

    def forward(self, images: Tensor, states: Tensor) -> Output:
        self.states = states.tolist()
        return Output(images.flatten(1), self.logits)


class Received:
    """The received model: logits of its own, one row an image; it is told nothing."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits
        self.asked = 0  # how many images it saw

    def __call__(self, weights: Weights, images: Tensor) -> Output:
        self.asked += len(images)
        return Output(images.flatten(1), self.logits[: len(images)])


def told_client(
    method: Method, labels: Tensor, known: Tensor, logits: Tensor, received: Tensor | None = None
) -> Local:
    data = holding(labels, known)
    return Local(
        round_index=0,
        received={"weights": {}},
        state=method.init_client(data),
        data=data,
        layout=Layout((), (), ()),
        model=Told(logits),  # type: ignore[arg-type]
        forward=Received(torch.zeros_like(logits) if received is None else received),
        predict=None,  # type: ignore[arg-type]
        generator=torch.Generator(),
    )


def told_batch(labels: Tensor, known: Tensor, drawn: Tensor) -> Batch:
    images = torch.zeros(len(labels), 1, 1, 1)
    return Batch((images,), labels, known, torch.arange(len(labels)), drawn)
