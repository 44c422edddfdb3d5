"""Blur and noise, one kind per sample; each kind is computed for the samples that drew it."""

from __future__ import annotations

import math
from functools import reduce

import torch
from torch import Tensor
from torch.nn import functional as F

from fedquilt.data.augmentation.draws import rows_by_kind

SIZES = (3, 5)  # window sizes of both blurs
KINDS = 2 * len(SIZES) + 1  # the two blurs in each size, and noise


def degrade(pixels: Tensor, kind: Tensor, noise: Tensor) -> Tensor:
    """Degrade each sample by its ``kind``, (B,) on the host; a negative kind changes nothing.

    Kinds 0 and 1 are median blurs, 2 and 3 Gaussian blurs, 4 adds ``noise``, shaped as ``pixels``.
    """
    result = pixels.clone()
    for number, rows in rows_by_kind(kind, pixels.device).items():
        if number < 0:
            continue
        chosen = pixels.index_select(0, rows)
        if number == KINDS - 1:
            degraded = chosen.add_(noise.index_select(0, rows)).clamp_(0, 1)
        else:
            blur = (median_blur, gaussian_blur)[number // len(SIZES)]
            degraded = blur(chosen, SIZES[number % len(SIZES)])
        result.index_copy_(0, rows, degraded)
    return result


def median_blur(pixels: Tensor, size: int) -> Tensor:
    """The median of each size x size window in steps of 1/255, with replicated borders.

    For the window sizes in ``SIZES``: sort the columns of a window, then its rows. Its median is
    the median of the anti-diagonal, the largest value of the diagonal before it and the smallest
    of the one after it. A sorted column is shared by all windows that contain it. Bytes take a
    quarter of the memory traffic of floats.
    """
    height, width = pixels.shape[2:]
    padded = F.pad(pixels, (size // 2,) * 4, mode="replicate").mul(255).round_().to(torch.uint8)
    columns = _sorted([padded.narrow(2, row, height) for row in range(size)])
    window = [_sorted([rank.narrow(3, start, width) for start in range(size)]) for rank in columns]
    before, middle, after = (
        [window[row][total - row] for row in range(size) if 0 <= total - row < size]
        for total in (size - 2, size - 1, size)
    )
    return _median([reduce(torch.maximum, before), *middle, reduce(torch.minimum, after)]) / 255


def gaussian_blur(pixels: Tensor, size: int) -> Tensor:
    """Gaussian blur with replicated borders; sigma follows from the window size as in OpenCV."""
    sigma = 0.3 * ((size - 1) * 0.5 - 1) + 0.8
    taps = [math.exp(-((tap - size // 2) ** 2) / (2 * sigma**2)) for tap in range(size)]
    padded = F.pad(pixels, (size // 2,) * 4, mode="replicate")
    return _weighted(_weighted(padded, 2, taps), 3, taps)


def _weighted(pixels: Tensor, axis: int, taps: list[float]) -> Tensor:
    """The weighted mean along an axis without padding: ``len(taps) - 1`` pixels shorter."""
    length = pixels.shape[axis] - len(taps) + 1
    total = taps[0] * pixels.narrow(axis, 0, length)
    for start, tap in enumerate(taps[1:], 1):
        total = total.add_(pixels.narrow(axis, start, length), alpha=tap)
    return total.div_(sum(taps))


def _sorted(values: list[Tensor]) -> list[Tensor]:
    """Sort tensors element by element, smallest first."""
    values = list(values)
    for last in range(len(values) - 1, 0, -1):
        _move_greatest(values, last)
    return values


def _median(values: list[Tensor]) -> Tensor:
    """The element-wise median of an odd number of tensors."""
    values = list(values)
    for last in range(len(values) - 1, len(values) // 2 - 1, -1):
        _move_greatest(values, last)
    return values[len(values) // 2]


def _move_greatest(values: list[Tensor], last: int) -> None:
    """Move the greatest of ``values[: last + 1]`` to position ``last`` by pairwise swaps."""
    for index in range(last):
        one, two = values[index], values[index + 1]
        values[index], values[index + 1] = torch.minimum(one, two), torch.maximum(one, two)
