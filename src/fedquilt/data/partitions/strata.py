"""Dirichlet shares over groups of images with the same label vector."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from fedquilt.core.errors import UserError
from fedquilt.data.partitions.partition import (
    DROPPED,
    Assignment,
    numbered_clients,
    refuse_impossible_count,
    refuse_non_positive,
)

Positives = npt.NDArray[np.bool_]
Counts = npt.NDArray[np.int64]


def label_patterns(positives: Positives) -> tuple[Positives, Counts]:
    """The distinct rows (U, C) in lexicographic order, and which of them each image has (N,)."""
    packed, pattern_of = np.unique(np.packbits(positives, axis=1), axis=0, return_inverse=True)
    patterns = np.unpackbits(packed, axis=1, count=positives.shape[1]).astype(np.bool_)
    return patterns, pattern_of.reshape(-1).astype(np.int64)


def rarest_positive(patterns: Positives, frequency: Counts) -> Counts:
    """Each row's positive class of the lowest frequency; C for a row without positives."""
    rarity = np.argsort(frequency, kind="stable")  # equally rare: the first class
    rarest = rarity[patterns[:, rarity].argmax(axis=1)]
    return np.asarray(np.where(patterns.any(axis=1), rarest, patterns.shape[1]))


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


def spread_strata(
    strata: Indices,  # (N,) the group of each image
    *,
    clients: int,
    concentration: float,
    smallest_client: int,
    attempts: int,
    stop_at_mean: bool = False,
    seed: int,
) -> Assignment:
    """Draw again until every client has ``smallest_client`` images.

    With ``stop_at_mean`` a client that already has its N / K images gets none of later groups.
    """
    images = len(strata)
    refuse_impossible_count(clients, images)
    refuse_non_positive(concentration=concentration)
    generator = np.random.default_rng(seed)
    limit = images / clients if stop_at_mean else np.inf

    def draw() -> Indices:
        client_of = np.full(images, DROPPED, dtype=np.int64)
        sizes = np.zeros(clients, dtype=np.int64)
        for stratum in np.unique(strata):
            members = generator.permutation(np.flatnonzero(strata == stratum))
            shares = restricted(generator.dirichlet(np.full(clients, concentration)), sizes < limit)
            ends = np.rint(np.cumsum(shares) * len(members))
            client_of[members] = np.searchsorted(ends, np.arange(len(members)), side="right")
            sizes += np.bincount(client_of[members], minlength=clients)
        return client_of

    client_of, draws = first_accepted(
        draw,
        lambda drawn: bool(np.bincount(drawn, minlength=clients).min() >= smallest_client),
        attempts=attempts,
        wish=f"every client {smallest_client} images",
    )
    return Assignment.from_clients(numbered_clients(clients), client_of, {"draws": draws})
