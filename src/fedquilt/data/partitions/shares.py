"""Clients' shares: restrict them, draw clients by them, and draw again until the draw will do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from fedquilt.data.partitions.partition import DROPPED
from fedquilt.errors import UserError

Drawn = TypeVar("Drawn")
Shares = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


def restricted(shares: Shares, allowed: npt.NDArray[np.bool_]) -> Shares:
    """Shares over the last axis that sum to 1 over the allowed clients; 0 if none is allowed.

    Where the allowed clients' mass underflows they share equally.
    """
    kept = np.where(allowed, shares, 0.0)
    total = kept.sum(axis=-1, keepdims=True)
    has_mass = total > np.finfo(np.float64).tiny
    equal = allowed / np.maximum(allowed.sum(axis=-1, keepdims=True), 1)
    return np.asarray(np.where(has_mass, kept / np.where(has_mass, total, 1.0), equal))


def draw_clients(shares: Shares, generator: np.random.Generator) -> Indices:
    """One client per row of (N, K) shares, ``DROPPED`` where a row has no share at all."""
    # The smallest of exponential waiting times with these rates falls on client k with share k.
    waiting = generator.exponential(size=shares.shape)
    possible = shares > 0
    waiting = np.where(possible, waiting / np.where(possible, shares, 1.0), np.inf)
    return np.where(possible.any(axis=1), waiting.argmin(axis=1), DROPPED)


def first_accepted(
    draw: Callable[[], Drawn], is_accepted: Callable[[Drawn], bool], *, attempts: int, wish: str
) -> tuple[Drawn, int]:
    """The first draw that will do, and how many draws that took."""
    for attempt in range(1, attempts + 1):
        drawn = draw()
        if is_accepted(drawn):
            return drawn, attempt
    raise UserError(
        f"none of {attempts} draws gave {wish}; use fewer clients, a higher concentration, "
        "a lower smallest_client or more attempts"
    )
