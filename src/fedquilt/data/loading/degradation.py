"""Blur or noise, one kind per sample; each kind is computed for the samples that drew it."""

from __future__ import annotations

import math
from itertools import product

import torch
from torch import Tensor
from torch.nn import functional as F

from fedquilt.data.loading.draws import rows_by_kind

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

    Sorting whole windows would need their size squared times the memory. Instead, of a few more
    than half the values drop the least and the greatest, which cannot be the median, and take in
    the next one, until one is left. Bytes move four times faster than floats.
    """
    height, width = pixels.shape[2:]
    padded = F.pad(pixels, (size // 2,) * 4, mode="replicate").mul(255).round_().to(torch.uint8)
    values = [
        padded[:, :, row : row + height, column : column + width]
        for row, column in product(range(size), repeat=2)
    ]
    start = len(values) // 2 + 2
    kept, waiting = values[:start], values[start:]
    while len(kept) > 1:
        for last in range(1, len(kept)):  # the greatest moves to the end
            kept[last - 1], kept[last] = _in_order(kept[last - 1], kept[last])
        kept.pop()
        for first in range(len(kept) - 1, 0, -1):  # the least moves to the front
            kept[first - 1], kept[first] = _in_order(kept[first - 1], kept[first])
        kept = kept[1:] + waiting[:1]
        waiting = waiting[1:]
    return kept[0] / 255


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


def _in_order(one: Tensor, two: Tensor) -> tuple[Tensor, Tensor]:
    return torch.minimum(one, two), torch.maximum(one, two)
