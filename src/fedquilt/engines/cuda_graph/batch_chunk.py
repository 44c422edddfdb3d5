"""Chunk: the batches of several steps, prepared at once; a captured step reads one per replay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedquilt.data.augmentation.draws import to_device
from fedquilt.data.augmentation.views import Preprocessing
from fedquilt.data.batches import Batch, Pool, make_batch
from fedquilt.data.client_data import ClientData

MEMORY_SHARE = 1 / 256  # of a GPU, for a chunk's images; preparing them takes several times that
HOST_BYTES = 2**27  # for a chunk's images on a CPU
MOST_STEPS = 128
COLUMNS = ("labels", "known", "rows")  # of a batch, besides its views


@dataclass(frozen=True)
class Segment:
    """Consecutive steps whose batches have the same shapes."""

    rows: tuple[Tensor, ...]  # per pool, (steps, B)
    drawn: Tensor | None  # (steps, ...)

    @property
    def steps(self) -> int:
        return len(self.rows[0])

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(rows.shape[1] for rows in self.rows)

    def to(self, device: torch.device) -> Segment:
        drawn = None if self.drawn is None else to_device(self.drawn, device)
        return Segment(tuple(to_device(rows, device) for rows in self.rows), drawn)


def segments(
    steps: Sequence[tuple[Tensor, ...]], drawn: Sequence[Tensor | None], most: int
) -> Iterator[Segment]:
    """Split a stage's steps where the batch size changes, and after ``most`` steps."""
    start, sizes = 0, [[len(rows) for rows in step] for step in steps]
    for end in range(1, len(steps) + 1):
        is_end = end == len(steps) or end - start == most or sizes[end] != sizes[start]
        if is_end:
            noise = [each for each in drawn[start:end] if each is not None]
            yield Segment(
                tuple(torch.stack(column) for column in zip(*steps[start:end])),
                torch.stack(noise) if noise else None,
            )
            start = end


def chunk_bytes(device: torch.device) -> int:
    """Return the memory for a chunk's images. Longer chunks mean fewer, larger kernel launches."""
    if device.type == "cpu":
        return HOST_BYTES
    return int(torch.cuda.get_device_properties(device).total_memory * MEMORY_SHARE)


def chunk_steps(pools: Sequence[Pool], image_shape: tuple[int, ...], most_bytes: int) -> int:
    """Return how many steps' images, as float32, fit into ``most_bytes``."""
    pixels = image_shape[0] * image_shape[1] * image_shape[2]
    images = sum(pool.batch_size * len(pool.views) for pool in pools)
    return max(1, min(MOST_STEPS, most_bytes // (4 * pixels * images)))


class Chunk:
    """Fixed buffers for the batches of up to ``steps`` steps, and the index of the next one."""

    def __init__(
        self, like: Batch, steps: int, device: torch.device, *, channels_last: bool
    ) -> None:
        self._channels_last = channels_last
        self._buffers = [self._empty(batch, steps) for batch in (like, *like.beside)]
        self._by_length: dict[int, list[Tensor]] = {}
        self._drawn = None if like.drawn is None else _empty_rows(like.drawn, steps)
        self.next = torch.zeros(1, dtype=torch.int64, device=device)

    def load(self, batches: Sequence[Batch], drawn: Tensor | None) -> None:
        """Copy the steps' batches, concatenated per pool, into the buffers; rewind to the first."""
        sources = [
            _column(batch, name, self._channels_last)
            for buffers, batch in zip(self._buffers, batches)
            for name in buffers
        ]
        torch._foreach_copy_(self._targets(len(batches[0].rows)), sources)
        if self._drawn is not None and drawn is not None:
            self._drawn[: len(drawn)].copy_(drawn)
        self.next.zero_()

    def _targets(self, images: int) -> list[Tensor]:
        """Return the buffers of as many steps as have so many images of the first pool."""
        if images not in self._by_length:
            steps = images // self._buffers[0]["rows"].shape[1]
            self._by_length[images] = [
                target[:steps].flatten(0, 1)
                for buffers in self._buffers
                for target in buffers.values()
            ]
        return self._by_length[images]

    def batch(self) -> Batch:
        """Return the next step's batch."""
        first, *beside = (self._batch(buffers) for buffers in self._buffers)
        drawn = None if self._drawn is None else self._at(self._drawn)
        return Batch(first.views, first.labels, first.known, first.rows, drawn, tuple(beside))

    def _batch(self, buffers: dict[str, Tensor]) -> Batch:
        views = tuple(
            self._at(column).permute(0, 3, 1, 2) if self._channels_last else self._at(column)
            for name, column in buffers.items()
            if name.isdigit()
        )
        labels, known, rows = (self._at(buffers[name]) for name in COLUMNS)
        return Batch(views, labels, known, rows)

    def _at(self, column: Tensor) -> Tensor:
        return column.index_select(0, self.next)[0]

    def _empty(self, like: Batch, steps: int) -> dict[str, Tensor]:
        names = [str(view) for view in range(len(like.views))] + [*COLUMNS]
        return {
            name: _empty_rows(_column(like, name, self._channels_last), steps) for name in names
        }


def load_chunk(
    chunk: Chunk,
    segment: Segment,
    data: ClientData,
    pools: Sequence[Pool],
    preprocessing: Preprocessing,
    generators: Sequence[torch.Generator],
    device: torch.device,
) -> None:
    """Gather and augment all images of a segment.

    A generator on the device draws for all steps at once. A generator on the host draws step by
    step, as in the sequential engine, so that both get the same random numbers.
    """
    batches = []
    for rows, pool, generator in zip(segment.rows, pools, generators):
        parts = [rows.flatten()] if generator.device.type != "cpu" else list(rows)
        made = [
            make_batch(data, part, pool.views, preprocessing, generator, device) for part in parts
        ]
        batches.append(made[0] if len(made) == 1 else _concatenated(made))
    chunk.load(batches, segment.drawn)


def _concatenated(batches: Sequence[Batch]) -> Batch:
    views = tuple(torch.cat(column) for column in zip(*(batch.views for batch in batches)))
    labels, known, rows = (
        torch.cat([getattr(batch, name) for batch in batches]) for name in COLUMNS
    )
    return Batch(views, labels, known, rows)


def _column(batch: Batch, name: str, channels_last: bool) -> Tensor:
    if not name.isdigit():
        column: Tensor = getattr(batch, name)
        return column
    view = batch.views[int(name)]
    return view.permute(0, 2, 3, 1) if channels_last else view


def _empty_rows(like: Tensor, steps: int) -> Tensor:
    return torch.empty((steps, *like.shape), dtype=like.dtype, device=like.device)
