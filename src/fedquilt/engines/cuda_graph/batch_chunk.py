"""A chunk: the batches of several steps, prepared at once and read by a recorded step in turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedquilt.data.augmentation.draws import sent
from fedquilt.data.augmentation.views import Preprocessing
from fedquilt.data.batches import Batch, Pool, make_batch
from fedquilt.data.client_data import ClientData

MEMORY_SHARE = 1 / 256  # of a device, for the images of a chunk; making them takes some times more
HOST_BYTES = 2**27  # the same on a CPU
MOST_STEPS = 128
COLUMNS = ("labels", "known", "rows")  # what a batch has beside its views


@dataclass(frozen=True)
class Segment:
    """Steps in a row whose batches have the same shapes."""

    rows: tuple[Tensor, ...]  # per pool, (steps, B)
    drawn: Tensor | None  # (steps, ...)

    @property
    def steps(self) -> int:
        return len(self.rows[0])

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(rows.shape[1] for rows in self.rows)

    def to(self, device: torch.device) -> Segment:
        drawn = None if self.drawn is None else sent(self.drawn, device)
        return Segment(tuple(sent(rows, device) for rows in self.rows), drawn)


def segments(
    steps: Sequence[tuple[Tensor, ...]], drawn: Sequence[Tensor | None], most: int
) -> Iterator[Segment]:
    """Cut a stage's steps where the length of a batch changes, and after ``most`` steps."""
    start, lengths = 0, [[len(rows) for rows in step] for step in steps]
    for end in range(1, len(steps) + 1):
        is_over = end == len(steps) or end - start == most or lengths[end] != lengths[start]
        if is_over:
            numbers = [each for each in drawn[start:end] if each is not None]
            yield Segment(
                tuple(torch.stack(column) for column in zip(*steps[start:end])),
                torch.stack(numbers) if numbers else None,
            )
            start = end


def bytes_of_a_chunk(device: torch.device) -> int:
    """Of its images. A longer chunk is made in fewer and larger pieces of work."""
    if device.type == "cpu":
        return HOST_BYTES
    return int(torch.cuda.get_device_properties(device).total_memory * MEMORY_SHARE)


def steps_in_a_chunk(pools: Sequence[Pool], image_shape: tuple[int, ...], most_bytes: int) -> int:
    pixels = image_shape[0] * image_shape[1] * image_shape[2]
    images = sum(pool.batch_size * len(pool.views) for pool in pools)
    return max(1, min(MOST_STEPS, most_bytes // (4 * pixels * images)))


class Chunk:
    """Fixed places for the batches of up to ``steps`` steps, and the number of the next one."""

    def __init__(
        self, like: Batch, steps: int, device: torch.device, *, channels_last: bool
    ) -> None:
        self._channels_last = channels_last
        self._places = [self._empty(batch, steps) for batch in (like, *like.beside)]
        self._drawn = None if like.drawn is None else _rows_of(like.drawn, steps)
        self.next = torch.zeros(1, dtype=torch.int64, device=device)

    def load(self, batches: Sequence[Batch], drawn: Tensor | None) -> None:
        """Take in the steps' batches, one long one per pool, and begin with the first step."""
        for place, batch in zip(self._places, batches):
            for name, target in place.items():
                source = _column(batch, name, self._channels_last)
                count = len(source) // target.shape[1]
                target[:count].view(-1, *source.shape[1:]).copy_(source)
        if self._drawn is not None and drawn is not None:
            self._drawn[: len(drawn)].copy_(drawn)
        self.next.zero_()

    def batch(self) -> Batch:
        """The next step's batch."""
        first, *beside = (self._batch(place) for place in self._places)
        drawn = None if self._drawn is None else self._at(self._drawn)
        return Batch(first.views, first.labels, first.known, first.rows, drawn, tuple(beside))

    def _batch(self, place: dict[str, Tensor]) -> Batch:
        views = tuple(
            self._at(column).permute(0, 3, 1, 2) if self._channels_last else self._at(column)
            for name, column in place.items()
            if name.isdigit()
        )
        labels, known, rows = (self._at(place[name]) for name in COLUMNS)
        return Batch(views, labels, known, rows)

    def _at(self, column: Tensor) -> Tensor:
        return column.index_select(0, self.next)[0]

    def _empty(self, like: Batch, steps: int) -> dict[str, Tensor]:
        names = [str(view) for view in range(len(like.views))] + [*COLUMNS]
        return {name: _rows_of(_column(like, name, self._channels_last), steps) for name in names}


def load_chunk(
    chunk: Chunk,
    segment: Segment,
    data: ClientData,
    pools: Sequence[Pool],
    viewing: Preprocessing,
    generators: Sequence[torch.Generator],
    device: torch.device,
) -> None:
    """Gather and augment all images of a segment.

    With a generator of the device, all at once. A generator of the host is drawn from step by
    step, as the reference engine does, so that both see the same numbers.
    """
    batches = []
    for rows, pool, generator in zip(segment.rows, pools, generators):
        parts = [rows.flatten()] if generator.device.type != "cpu" else list(rows)
        made = [make_batch(data, part, pool.views, viewing, generator, device) for part in parts]
        batches.append(made[0] if len(made) == 1 else _joined(made))
    chunk.load(batches, segment.drawn)


def _joined(batches: Sequence[Batch]) -> Batch:
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


def _rows_of(like: Tensor, steps: int) -> Tensor:
    return torch.empty((steps, *like.shape), dtype=like.dtype, device=like.device)
