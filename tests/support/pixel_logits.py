"""A client whose network reads its logits off the pixels: for losses with numbers by hand."""

from __future__ import annotations

from dataclasses import replace

import torch
from support.tiny_federation import Federation, make_federation
from torch import Tensor, nn

from fedquilt.core.tree import Weights
from fedquilt.data.augmentation.views import Views
from fedquilt.data.batches import Batch
from fedquilt.data.client_data import ClientData
from fedquilt.models.network import Layout, Output
from fedquilt.training.method import Local, Method, State

LAYOUT = Layout(body=("shift",), head=(), buffers=())


class PixelLogits(nn.Module):
    """Logits are the pixels plus a trainable shift, one for all classes."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(1))

    def forward(self, images: Tensor) -> Output:
        return Output(images.flatten(1), images.flatten(1) + self.shift)


def shifted(weights: Weights, images: Tensor) -> Output:
    return Output(images.flatten(1), images.flatten(1) + weights["shift"])


def make_local(
    method: Method, known: Tensor, labels: Tensor, *, round_index: int = 0, **received: Tensor
) -> Local:
    """A client that received a model whose logits are the pixels plus 0."""
    count, classes = known.shape
    data = ClientData(
        name="site",
        images=torch.zeros(count, 1, 1, classes, dtype=torch.uint8),
        indices=torch.arange(count),
        labels=labels.to(torch.uint8),
        known=known,
    )
    return Local(
        round_index=round_index,
        received={"weights": {"shift": torch.zeros(1)}, **received},
        state=method.init_client(data),
        data=data,
        layout=LAYOUT,
        model=PixelLogits(),  # type: ignore[arg-type]
        forward=shifted,
        predict=lambda weights, view: shifted(weights, torch.zeros(count, classes)),
        stage=method.stages(round_index)[0].name,
        generator=torch.Generator(),
    )


def make_batch(local: Local, *logits: Tensor) -> Batch:
    """A batch of all of the client's images with one view per entry of ``logits``, (B, C)."""
    views = tuple(view[:, None, None, :] for view in logits)
    rows = torch.arange(len(local.data))
    return Batch(views, local.data.labels.to(torch.float32), local.data.known, rows)


def plain_federation(**settings: object) -> Federation:
    """Without augmentation: methods that ask for different views then see the same images."""
    federation = make_federation(**settings)  # type: ignore[arg-type]
    preprocessing = replace(
        federation.task.preprocessing, views=Views(weak="plain", strong="plain")
    )
    return replace(federation, task=replace(federation.task, preprocessing=preprocessing))


def with_teacher(local: Local, shift: float) -> State:
    """The state with a teacher whose logits are the pixels plus ``shift``."""
    return {**local.state, "teacher": {"shift": torch.tensor([shift])}}
