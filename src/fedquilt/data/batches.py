"""One client's batches of a round: shuffled, gathered, augmented and normalised."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from fedquilt.data.augmentation.draws import sent
from fedquilt.data.augmentation.views import Preprocessing, make_view
from fedquilt.data.client_data import ClientData


@dataclass(frozen=True)
class Pool:
    """Images that a step draws from, so many at a time."""

    batch_size: int
    views: tuple[str, ...]  # the augmentations each batch carries
    rows: Tensor | None = None  # row numbers in the client's data; all of them if left out
    whole: bool = False  # full batches only: batches that are paired must be equally long
    shuffles: bool = True  # or all in order, to the last: to look at, not to train on


@dataclass(frozen=True)
class Batch:
    """What a loss sees; ``labels`` mean something only where ``known``."""

    views: tuple[Tensor, ...]  # each (B, channels, height, width) float32, as the method asked
    labels: Tensor  # (B, C) float32
    known: Tensor  # (B, C) bool
    rows: Tensor  # (B,) row numbers in the client's data
    drawn: Tensor | None = None  # the step's random numbers, if the method draws any
    beside: tuple[Batch, ...] = ()  # one from every further pool


def train_batches(
    data: ClientData,
    pool: Pool,
    viewing: Preprocessing,
    *,
    step_count: int,
    order: torch.Generator,
    augmentation: torch.Generator,
    device: torch.device,
) -> Iterator[Batch]:
    """Yield ``step_count`` batches.

    Order and augmentation have generators of their own, so that methods which ask for different
    views still see the same images in the same order.
    """
    for rows in row_batches(pool, len(data), step_count, order, data.indices.device):
        yield make_batch(data, rows, pool.views, viewing, augmentation, device)


def row_batches(
    pool: Pool, size: int, step_count: int, order: torch.Generator, device: torch.device
) -> Iterator[Tensor]:
    """The rows of ``step_count`` batches, reshuffled whenever the pool has been seen.

    A pool's own rows are looked up on ``device``, where the images are: rows that a GPU has yet
    to find need not come to the host, which would have to wait for them.
    """
    count, per_epoch = size if pool.rows is None else len(pool.rows), pool_steps(pool, size)
    for step in range(step_count):
        if step % per_epoch == 0:
            drawn = torch.randperm(count, generator=order) if pool.shuffles else torch.arange(count)
            rows = drawn if pool.rows is None else _at(pool.rows, drawn, device)
            batches = rows.split(pool.batch_size)
        yield batches[step % per_epoch]


def ordered_batches(
    data: ClientData,
    viewing: Preprocessing,
    augmentation: torch.Generator,
    device: torch.device,
    view: str,
    batch_size: int,
) -> Iterator[Batch]:
    """Every image once, in the order the client holds them."""
    for rows in torch.arange(len(data)).split(batch_size):
        yield make_batch(data, rows, (view,), viewing, augmentation, device)


def make_batch(
    data: ClientData,
    rows: Tensor,
    views: tuple[str, ...],
    viewing: Preprocessing,
    augmentation: torch.Generator,
    device: torch.device,
) -> Batch:
    pixels = data.pixels(sent(rows, data.indices.device)).to(device)
    rows = sent(rows, data.labels.device)
    return Batch(
        views=tuple(
            make_view(pixels, viewing.view(name), viewing.mean, viewing.std, augmentation)
            for name in views
        ),
        labels=data.labels.index_select(0, rows).to(device, torch.float32),
        known=data.known.index_select(0, rows).to(device),
        rows=sent(rows, device),
    )


def _at(rows: Tensor, places: Tensor, device: torch.device) -> Tensor:
    return sent(rows, device).index_select(0, sent(places, device))


def pool_steps(pool: Pool, size: int) -> int:
    """How many steps see all of a pool; ``size`` is the client's images."""
    count = size if pool.rows is None else len(pool.rows)
    if not pool.shuffles:
        return math.ceil(count / pool.batch_size)
    return steps_per_epoch(count, pool.batch_size, whole=pool.whole)


def steps_per_epoch(size: int, batch_size: int, *, whole: bool = False) -> int:
    """How many batches a pool gives before it is shuffled again.

    A single image left over at the end is not made a batch of its own: batch norm cannot train on
    it. The next shuffle leaves over another one.
    """
    full, rest = divmod(size, batch_size)
    return max(1, full + (rest > 1 and not whole))
