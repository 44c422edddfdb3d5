"""Paint canvases from a plan; where two images overlap, the brighter pixel wins."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import interpolate

from fedquilt.data.parallel import in_parallel
from fedquilt.data.sources.composites.plan import Pieces, Plan

BATCH = 500  # canvases that a thread paints at a time
IN_FLIGHT = 8  # batches submitted at a time, to bound memory

Pixels = NDArray[np.uint8]


def paint(
    plan: Plan, images: Pixels, canvas: int, size: int | None, title: str
) -> Iterator[Pixels]:
    """Yield the plan's canvases in order, in batches (n, channels, size, size).

    ``images`` is (N, channels, side, side). If ``size`` is given, canvases are resized to it.
    """

    def work(rows: range) -> Pixels:
        painted = paint_rows(plan, images, canvas, rows)
        return painted if size is None or size == canvas else _resized(painted, size)

    count = len(plan.labels)
    batches = [range(start, min(start + BATCH, count)) for start in range(0, count, BATCH)]
    return in_parallel(work, batches, title, count_of=len, in_flight=IN_FLIGHT)


def paint_rows(plan: Plan, images: Pixels, canvas: int, rows: range) -> Pixels:
    """The canvases ``rows`` of the plan, without resizing."""
    channels, side = images.shape[1:3]
    # Images that leave the canvas are painted on a larger one, which is folded afterwards.
    furthest = max(each.max(initial=0) for each in _corners(plan.first) + _corners(plan.second))
    extent = max(canvas, int(furthest) + side)
    painted = np.zeros((len(rows), channels, extent, extent), np.uint8)
    for pieces in (plan.first, plan.second):
        start, stop = np.searchsorted(pieces.row, (rows.start, rows.stop))
        within = slice(int(start), int(stop))
        rest = (each[within].tolist() for each in (pieces.image, pieces.top, pieces.left))
        for row, image, top, left in zip((pieces.row[within] - rows.start).tolist(), *rest):
            region = painted[row, :, top : top + side, left : left + side]
            np.maximum(region, images[image], out=region)
    return _folded(painted, canvas)


def _corners(pieces: Pieces) -> list[NDArray[np.int64]]:
    return [pieces.top, pieces.left]


def _folded(painted: Pixels, canvas: int) -> Pixels:
    """Wrap what is outside the canvas around to the opposite side."""
    over = painted.shape[2] - canvas
    if over > 0:
        np.maximum(painted[:, :, :over], painted[:, :, canvas:], out=painted[:, :, :over])
        np.maximum(painted[..., :over], painted[..., canvas:], out=painted[..., :over])
    return painted[:, :, :canvas, :canvas]


def _resized(painted: Pixels, size: int) -> Pixels:
    """Resize bilinearly; torch resizes uint8 in integer arithmetic, so all machines agree."""
    pixels = torch.from_numpy(np.ascontiguousarray(painted))
    result: Pixels = interpolate(pixels, (size, size), mode="bilinear", antialias=True).numpy()
    return result
