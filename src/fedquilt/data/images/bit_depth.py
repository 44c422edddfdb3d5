"""Scale grey values of any bit depth to 8 bits, a strip of rows at a time to save memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Pixels: TypeAlias = NDArray[np.uint8]


STRIP_VALUES = 2**20  # converted at a time


def in_strips(
    values: NDArray[np.generic], convert: Callable[[NDArray[np.generic]], Pixels]
) -> Pixels:
    """Convert an image to 8 bits by rows; ``convert`` treats every value alone."""
    pixels = np.empty(values.shape, dtype=np.uint8)
    rows = max(1, STRIP_VALUES // max(1, values[:1].size))
    for start in range(0, len(values), rows):
        pixels[start : start + rows] = convert(values[start : start + rows])
    return pixels


def scale_to_bytes(values: NDArray[np.generic], low: float, high: float) -> Pixels:
    """Scale linearly from ``low``..``high`` to 0..255; values outside are clipped."""
    share = (values.astype(np.float32) - low) / max(high - low, 1e-6)
    return np.asarray(np.rint(share.clip(0, 1) * 255), dtype=np.uint8)
