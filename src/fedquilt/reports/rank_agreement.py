"""Spearman's rank correlation: do two lists of numbers put the same things first?"""

from __future__ import annotations

import math
from collections.abc import Sequence

LEAST = 3  # two things are in the same order or in the opposite one: that says next to nothing


def spearman(one: Sequence[float], other: Sequence[float]) -> float | None:
    """From -1, the opposite order, to 1, the same; None below three, or where all are equal."""
    if len(one) < LEAST:
        return None
    ranks = (_centred_ranks(one), _centred_ranks(other))
    lengths = [math.sqrt(sum(rank * rank for rank in each)) for each in ranks]
    if min(lengths) == 0:
        return None
    return sum(a * b for a, b in zip(*ranks, strict=True)) / (lengths[0] * lengths[1])


def _centred_ranks(values: Sequence[float]) -> list[float]:
    """Ranks with mean 0; equal values share the middle of their ranks."""
    middle = (len(values) + 1) / 2
    return [
        sum(other < value for other in values)
        + (sum(other == value for other in values) + 1) / 2
        - middle
        for value in values
    ]
