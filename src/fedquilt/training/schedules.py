"""The Gaussian ramp: how strongly a term counts while the model it rests on is still young."""

from __future__ import annotations

import math


def gaussian_ramp(round_index: int, start: int, end: int) -> float:
    """From exp(-5) at or before ``start`` to 1 at or after ``end``; without a way between, 1."""
    if end == start:
        return 1.0
    missing = 1.0 - (min(max(round_index, start), end) - start) / (end - start)
    return math.exp(-5.0 * missing**2)
