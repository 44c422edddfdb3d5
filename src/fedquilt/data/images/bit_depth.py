"""Scale grey values of any bit depth to 8 bits."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Pixels: TypeAlias = NDArray[np.uint8]


def scale_to_bytes(values: NDArray[np.generic], low: float, high: float) -> Pixels:
    """Scale linearly from ``low``..``high`` to 0..255; values outside are clipped."""
    share = (values.astype(np.float32) - low) / max(high - low, 1e-6)
    return np.asarray(np.rint(share.clip(0, 1) * 255), dtype=np.uint8)
