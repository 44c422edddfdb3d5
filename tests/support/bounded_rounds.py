"""Rounds of a few updates with one part, x, within bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress

import torch
from torch import tensor

from fedquilt.core.bounds import HELD, Bounds, OutOfBounds, RoundBounds
from fedquilt.core.norms import EarlierNorms
from fedquilt.core.payload import Mean, Update
from fedquilt.core.totals import Accumulator, Totals

# The five updates of PRIVACY.md, C: norms 1, 1.2042, .8062, 1.0198 and 11.1803.
FIVE = ((1.0, 0.0), (1.2, 0.1), (0.8, -0.1), (1.0, 0.2), (-10.0, 5.0))
NOTHING = EarlierNorms()
CLIP, REFUSE = Bounds(beyond="clip"), Bounds(norm_factor=5.0)


def mean(value: Sequence[float], weight: float = 1.0) -> Update:
    return {"x": Mean(tensor(value), weight)}


def accumulated(
    updates: Sequence[Update],
    settings: Bounds,
    before: EarlierNorms = NOTHING,
    limit: float = math.inf,
    hold: int = HELD,
) -> Totals:
    bounds = RoundBounds(settings, before, lambda client, part: limit, hold=hold)
    accumulator = Accumulator(updates[0], len(updates), bounds=bounds)
    for number, update in enumerate(updates):
        with suppress(OutOfBounds):  # the totals name it
            accumulator.add(f"c{number}", update)
    return accumulator.totals()


def refused_by(bounds: RoundBounds, *values: float) -> list[str]:
    accumulator = Accumulator(mean((1.0,)), len(values), bounds=bounds)
    for number, value in enumerate(values):
        accumulator.add(f"c{number}", mean((value,)))
    return [*accumulator.totals().bounds.refused]


def earlier_norms(median: float, sustained: float | None = None) -> EarlierNorms:
    longer = {} if sustained is None else {"x": tensor(sustained, dtype=torch.float64)}
    return EarlierNorms({"x": tensor(median, dtype=torch.float64)}, longer)


def no_limit(client: str, part: str) -> float:
    return math.inf
