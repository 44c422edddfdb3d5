"""Blur or noise, one kind per sample; each kind is computed for the samples that drew it."""

from __future__ import annotations

import math
from functools import reduce

import torch
from torch import Tensor
from torch.nn import functional as F

from fedquilt.data.augmentation.draws import rows_by_kind

SIZES = (3, 5)  # sides of the windows of both blurs
KINDS = 2 * len(SIZES) + 1  # the two blurs in each size, and noise


def degrade(pixels: Tensor, kind: Tensor, noise: Tensor) -> Tensor:
    """Blur or disturb each sample by its ``kind``, (B,) on the host; below 0 it stays as it is.

    Kinds 0 and 1 are median blurs, 2 and 3 Gaussian blurs, 4 adds ``noise``, of pixels' shape.
    """
    result = pixels.clone()
    for number, rows in rows_by_kind(kind, pixels.device).items():
        if number < 0:
            continue
        chosen = pixels.index_select(0, rows)
        if number == KINDS - 1:
            changed = chosen.add_(noise.index_select(0, rows)).clamp_(0, 1)
        else:
            blur = (median_blur, gaussian_blur)[number // len(SIZES)]
            changed = blur(chosen, SIZES[number % len(SIZES)])
        result.index_copy_(0, rows, changed)
    return result


def median_blur(pixels: Tensor, size: int) -> Tensor:
    """The median of each size x size window in steps of 1/255, the border repeated.

    Of a window of these sizes whose columns and then rows are sorted, the median is that of the
    diagonal that rises from left to right, the largest of the diagonal before it and the smallest
    of the one after it; a sorted column serves all windows it is in. Bytes move four times faster
    than floats.
    """
    height, width = pixels.shape[2:]
    padded = F.pad(pixels, (size // 2,) * 4, mode="replicate").mul(255).round_().to(torch.uint8)
    columns = _in_order([padded.narrow(2, row, height) for row in range(size)])
    window = [
        _in_order([rank.narrow(3, place, width) for place in range(size)]) for rank in columns
    ]
    before, rising, after = (
        [window[row][total - row] for row in range(size) if 0 <= total - row < size]
        for total in (size - 2, size - 1, size)
    )
    return _middle([reduce(torch.maximum, before), *rising, reduce(torch.minimum, after)]) / 255


def gaussian_blur(pixels: Tensor, size: int) -> Tensor:
    """A Gaussian window, the border repeated; its width follows from its size as in OpenCV."""
    sigma = 0.3 * ((size - 1) * 0.5 - 1) + 0.8
    taps = [math.exp(-((tap - size // 2) ** 2) / (2 * sigma**2)) for tap in range(size)]
    padded = F.pad(pixels, (size // 2,) * 4, mode="replicate")
    return _weighted(_weighted(padded, 2, taps), 3, taps)


def _weighted(pixels: Tensor, axis: int, taps: list[float]) -> Tensor:
    """The weighted mean of neighbours along an axis, which gets shorter by all taps but one."""
    length = pixels.shape[axis] - len(taps) + 1
    total = taps[0] * pixels.narrow(axis, 0, length)
    for start, tap in enumerate(taps[1:], 1):
        total = total.add_(pixels.narrow(axis, start, length), alpha=tap)
    return total.div_(sum(taps))


def _in_order(values: list[Tensor]) -> list[Tensor]:
    """Sorted place by place, the least first."""
    values = list(values)
    for last in range(len(values) - 1, 0, -1):
        _move_greatest(values, last)
    return values


def _middle(values: list[Tensor]) -> Tensor:
    """The median of an odd number of values, place by place."""
    values = list(values)
    for last in range(len(values) - 1, len(values) // 2 - 1, -1):
        _move_greatest(values, last)
    return values[len(values) // 2]


def _move_greatest(values: list[Tensor], last: int) -> None:
    """The greatest of the values up to ``last`` goes there."""
    for place in range(last):
        one, two = values[place], values[place + 1]
        values[place], values[place + 1] = torch.minimum(one, two), torch.maximum(one, two)
