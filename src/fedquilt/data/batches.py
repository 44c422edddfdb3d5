"""Batches of one client: samples drawn from pools, augmented and normalised."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from fedquilt.data.augmentation.draws import to_device
from fedquilt.data.augmentation.views import Preprocessing, make_view
from fedquilt.data.client_data import ClientData


@dataclass(frozen=True)
class Pool:
    """Samples from which each step takes ``batch_size``."""

    batch_size: int
    views: tuple[str, ...]  # roles of the views in each batch: weak, strong or plain
    rows: Tensor | None = None  # indices into the client's data; None: all samples
    whole: bool = False  # full batches only, for pools whose batches are paired
    shuffles: bool = True  # False: all samples in order, for passes that do not train


@dataclass(frozen=True)
class Batch:
    """The input of a loss; ``labels`` are meaningful only where ``known``."""

    views: tuple[Tensor, ...]  # each (B, channels, height, width) float32, in the pool's order
    labels: Tensor  # (B, C) float32
    known: Tensor  # (B, C) bool
    rows: Tensor  # (B,) indices into the client's data
    drawn: Tensor | None = None  # the step's random numbers, if the method samples noise
    beside: tuple[Batch, ...] = ()  # one batch from each further pool


def train_batches(
    data: ClientData,
    pool: Pool,
    preprocessing: Preprocessing,
    *,
    step_count: int,
    order: torch.Generator,
    augmentation: torch.Generator,
    device: torch.device,
) -> Iterator[Batch]:
    """Yield ``step_count`` batches.

    Order and augmentation use separate generators, so that methods with different views see the
    same images in the same order.
    """
    for rows in row_batches(pool, len(data), step_count, order, data.indices.device):
        yield make_batch(data, rows, pool.views, preprocessing, augmentation, device)


def row_batches(
    pool: Pool, size: int, step_count: int, order: torch.Generator, device: torch.device
) -> Iterator[Tensor]:
    """Yield the indices of ``step_count`` batches; reshuffle the pool after each epoch.

    ``pool.rows`` is indexed on ``device``, where the images are: a copy to the host would wait
    for the GPU to compute them.
    """
    count, per_epoch = size if pool.rows is None else len(pool.rows), pool_steps(pool, size)
    for step in range(step_count):
        if step % per_epoch == 0:
            drawn = torch.randperm(count, generator=order) if pool.shuffles else torch.arange(count)
            rows = drawn if pool.rows is None else _take(pool.rows, drawn, device)
            batches = rows.split(pool.batch_size)
        yield batches[step % per_epoch]


def ordered_batches(
    data: ClientData,
    preprocessing: Preprocessing,
    augmentation: torch.Generator,
    device: torch.device,
    view: str,
    batch_size: int,
) -> Iterator[Batch]:
    """Yield every sample once, in the client's order."""
    for rows in torch.arange(len(data)).split(batch_size):
        yield make_batch(data, rows, (view,), preprocessing, augmentation, device)


def make_batch(
    data: ClientData,
    rows: Tensor,
    views: tuple[str, ...],
    preprocessing: Preprocessing,
    augmentation: torch.Generator,
    device: torch.device,
) -> Batch:
    """Gather the samples at ``rows`` on ``device`` and make their views."""
    pixels = data.pixels(to_device(rows, data.indices.device)).to(device)
    rows = to_device(rows, data.labels.device)
    mean, std = preprocessing.mean, preprocessing.std
    return Batch(
        views=tuple(
            make_view(pixels, preprocessing.view(name), mean, std, augmentation) for name in views
        ),
        labels=data.labels.index_select(0, rows).to(device, torch.float32),
        known=data.known.index_select(0, rows).to(device),
        rows=to_device(rows, device),
    )


def _take(rows: Tensor, positions: Tensor, device: torch.device) -> Tensor:
    return to_device(rows, device).index_select(0, to_device(positions, device))


def pool_steps(pool: Pool, size: int) -> int:
    """The number of steps in one epoch of a pool; ``size`` is the client's number of images."""
    count = size if pool.rows is None else len(pool.rows)
    if not pool.shuffles:
        return math.ceil(count / pool.batch_size)
    return steps_per_epoch(count, pool.batch_size, whole=pool.whole)


def steps_per_epoch(size: int, batch_size: int, *, whole: bool = False) -> int:
    """The number of batches before the pool is shuffled again.

    A tail batch of one image is dropped, because batch norm cannot train on it. Each shuffle
    drops another image.
    """
    full, rest = divmod(size, batch_size)
    return max(1, full + (rest > 1 and not whole))
