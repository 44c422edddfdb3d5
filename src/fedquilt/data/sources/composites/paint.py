"""Canvases painted as a plan says: brighter pixels win where two images overlap."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import interpolate

from fedquilt.data.parallel import in_parallel
from fedquilt.data.sources.composites.plan import Pieces, Plan

BATCH = 500  # canvases that a thread paints at a time
IN_FLIGHT = 8  # such batches, so that memory stays small however many canvases there are

Pixels = NDArray[np.uint8]


def paint(
    plan: Plan, images: Pixels, canvas: int, size: int | None, title: str
) -> Iterator[Pixels]:
    """The canvases (n, channels, size, size) of the plan in order, batch by batch.

    ``images`` is (N, channels, side, side); ``size`` is what canvases are resized to, if given.
    """

    def work(rows: range) -> Pixels:
        painted = paint_rows(plan, images, canvas, rows)
        return painted if size is None or size == canvas else _resized(painted, size)

    count = len(plan.labels)
    batches = [range(start, min(start + BATCH, count)) for start in range(0, count, BATCH)]
    return in_parallel(work, batches, title, count_of=len, in_flight=IN_FLIGHT)


def paint_rows(plan: Plan, images: Pixels, canvas: int, rows: range) -> Pixels:
    channels, side = images.shape[1:3]
    # Images that leave the canvas are painted whole on a larger one, which is folded afterwards.
    reach = max(each.max(initial=0) for each in _places(plan.first) + _places(plan.second))
    extent = max(canvas, int(reach) + side)
    painted = np.zeros((len(rows), channels, extent, extent), np.uint8)
    for pieces in (plan.first, plan.second):
        start, stop = np.searchsorted(pieces.row, (rows.start, rows.stop))
        within = slice(int(start), int(stop))
        rest = (each[within].tolist() for each in (pieces.image, pieces.top, pieces.left))
        for row, image, top, left in zip((pieces.row[within] - rows.start).tolist(), *rest):
            place = painted[row, :, top : top + side, left : left + side]
            np.maximum(place, images[image], out=place)
    return _folded(painted, canvas)


def _places(pieces: Pieces) -> list[NDArray[np.int64]]:
    return [pieces.top, pieces.left]


def _folded(painted: Pixels, canvas: int) -> Pixels:
    over = painted.shape[2] - canvas
    if over > 0:
        np.maximum(painted[:, :, :over], painted[:, :, canvas:], out=painted[:, :, :over])
        np.maximum(painted[..., :over], painted[..., canvas:], out=painted[..., :over])
    return painted[:, :, :canvas, :canvas]


def _resized(painted: Pixels, size: int) -> Pixels:
    """Bilinear; torch computes bytes with whole numbers, so machines agree on every pixel."""
    pixels = torch.from_numpy(np.ascontiguousarray(painted))
    result: Pixels = interpolate(pixels, (size, size), mode="bilinear", antialias=True).numpy()
    return result
