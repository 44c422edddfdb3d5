"""Schedules: a Gaussian ramp-up of a loss weight over rounds."""

from __future__ import annotations

import math


def gaussian_ramp(round_index: int, start: int, end: int) -> float:
    """Rise from exp(-5) up to round ``start`` to 1 from round ``end`` on; 1 if they are equal."""
    if end == start:
        return 1.0
    missing = 1.0 - (min(max(round_index, start), end) - start) / (end - start)
    return math.exp(-5.0 * missing**2)
