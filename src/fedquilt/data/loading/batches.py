"""One client's batches of a round: shuffled, gathered, augmented and normalised."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from fedquilt.data.client_data import ClientData
from fedquilt.data.loading.viewing import Viewing
from fedquilt.data.loading.views import make_view


@dataclass(frozen=True)
class Batch:
    """What a loss sees; ``labels`` mean something only where ``known``."""

    views: tuple[Tensor, ...]  # each (B, channels, height, width) float32, as the method asked
    labels: Tensor  # (B, C) float32
    known: Tensor  # (B, C) bool
    rows: Tensor  # (B,) row numbers in the client's data


def train_batches(
    data: ClientData,
    views: tuple[str, ...],
    viewing: Viewing,
    *,
    batch_size: int,
    step_count: int,
    order: torch.Generator,
    augmentation: torch.Generator,
    device: torch.device,
) -> Iterator[Batch]:
    """Yield ``step_count`` batches, reshuffling whenever the data has been seen.

    Order and augmentation have generators of their own, so that methods which ask for different
    views still see the same images in the same order.
    """
    remaining = step_count
    while remaining > 0:
        for rows in _epoch_rows(len(data), batch_size, order)[:remaining]:
            yield _make_batch(data, rows, views, viewing, augmentation, device)
            remaining -= 1


def ordered_batches(
    data: ClientData,
    viewing: Viewing,
    augmentation: torch.Generator,
    device: torch.device,
    view: str,
    batch_size: int,
) -> Iterator[Batch]:
    """Every image once, in the order the client holds them."""
    for rows in torch.arange(len(data)).split(batch_size):
        yield _make_batch(data, rows, (view,), viewing, augmentation, device)


def _make_batch(
    data: ClientData,
    rows: Tensor,
    views: tuple[str, ...],
    viewing: Viewing,
    augmentation: torch.Generator,
    device: torch.device,
) -> Batch:
    pixels = data.pixels(rows).to(device)
    return Batch(
        views=tuple(
            make_view(pixels, viewing.view(name), viewing.mean, viewing.std, augmentation)
            for name in views
        ),
        labels=data.labels[rows].to(device, torch.float32),
        known=data.known[rows].to(device),
        rows=rows.to(device),
    )


def steps_per_epoch(size: int, batch_size: int) -> int:
    full, rest = divmod(size, batch_size)
    return max(1, full + (rest > 1))


def _epoch_rows(size: int, batch_size: int, generator: torch.Generator) -> list[Tensor]:
    """Shuffled row numbers in batches.

    A single image left over at the end is not made a batch of its own: batch norm cannot train on
    it. The next shuffle leaves over another one.
    """
    order = torch.randperm(size, generator=generator)
    return list(order.split(batch_size))[: steps_per_epoch(size, batch_size)]
