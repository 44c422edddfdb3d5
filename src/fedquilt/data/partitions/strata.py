"""Helpers of the Dirichlet partitions: label patterns, shares per client and strata of images."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from fedquilt.core.errors import UserError
from fedquilt.data.partitions.partition import (
    DROPPED,
    Assignment,
    check_client_count,
    check_positive,
    numbered_clients,
)

Drawn = TypeVar("Drawn")

Positives = npt.NDArray[np.bool_]
Counts = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int64]
Shares = npt.NDArray[np.float64]


def label_patterns(positives: Positives) -> tuple[Positives, Counts]:
    """The distinct label vectors (U, C), sorted, and the index of each image's vector (N,)."""
    packed, pattern_of = np.unique(np.packbits(positives, axis=1), axis=0, return_inverse=True)
    patterns = np.unpackbits(packed, axis=1, count=positives.shape[1]).astype(np.bool_)
    return patterns, pattern_of.reshape(-1).astype(np.int64)


def rarest_positive(patterns: Positives, frequency: Counts) -> Counts:
    """(U,) the rarest positive class of each pattern; C for a pattern without positives."""
    rarity = np.argsort(frequency, kind="stable")  # a tie goes to the first class
    rarest = rarity[patterns[:, rarity].argmax(axis=1)]
    return np.asarray(np.where(patterns.any(axis=1), rarest, patterns.shape[1]))


def restrict_shares(shares: Shares, allowed: npt.NDArray[np.bool_]) -> Shares:
    """Renormalise shares over the allowed clients (last axis); all 0 if none is allowed.

    If the allowed clients' total underflows, they get equal shares.
    """
    kept = np.where(allowed, shares, 0.0)
    total = kept.sum(axis=-1, keepdims=True)
    has_mass = total > np.finfo(np.float64).tiny
    equal = allowed / np.maximum(allowed.sum(axis=-1, keepdims=True), 1)
    return np.asarray(np.where(has_mass, kept / np.where(has_mass, total, 1.0), equal))


def draw_clients(shares: Shares, generator: np.random.Generator) -> Indices:
    """Draw one client per row of (N, K) shares; ``DROPPED`` where all shares are 0."""
    # Of exponential waiting times with these rates, client k's is the smallest with share k.
    waiting = generator.exponential(size=shares.shape)
    possible = shares > 0
    waiting = np.where(possible, waiting / np.where(possible, shares, 1.0), np.inf)
    return np.where(possible.any(axis=1), waiting.argmin(axis=1), DROPPED)


def draw_until(
    draw: Callable[[], Drawn], is_accepted: Callable[[Drawn], bool], *, attempts: int, goal: str
) -> tuple[Drawn, int]:
    """The first accepted draw and the number of draws; raise a ``UserError`` if there is none."""
    for attempt in range(1, attempts + 1):
        drawn = draw()
        if is_accepted(drawn):
            return drawn, attempt
    raise UserError(
        f"none of {attempts} draws gave {goal}; use fewer clients, a higher concentration, "
        "a lower smallest_client or more attempts"
    )


def spread_strata(
    strata: Indices,  # (N,) the stratum of each image
    *,
    clients: int,
    concentration: float,
    smallest_client: int,
    attempts: int,
    stop_at_mean: bool = False,
    seed: int,
) -> Assignment:
    """Split each stratum over the clients in Dirichlet shares.

    Draws again until every client has ``smallest_client`` images. With ``stop_at_mean``, a client
    that has reached N / K images gets none of the following strata.
    """
    images = len(strata)
    check_client_count(clients, images)
    check_positive(concentration=concentration)
    generator = np.random.default_rng(seed)
    limit = images / clients if stop_at_mean else np.inf

    def draw() -> Indices:
        client_of = np.full(images, DROPPED, dtype=np.int64)
        sizes = np.zeros(clients, dtype=np.int64)
        for stratum in np.unique(strata):
            members = generator.permutation(np.flatnonzero(strata == stratum))
            shares = restrict_shares(
                generator.dirichlet(np.full(clients, concentration)), sizes < limit
            )
            ends = np.rint(np.cumsum(shares) * len(members))
            client_of[members] = np.searchsorted(ends, np.arange(len(members)), side="right")
            sizes += np.bincount(client_of[members], minlength=clients)
        return client_of

    client_of, draws = draw_until(
        draw,
        lambda drawn: bool(np.bincount(drawn, minlength=clients).min() >= smallest_client),
        attempts=attempts,
        goal=f"every client {smallest_client} images",
    )
    return Assignment.from_clients(numbered_clients(clients), client_of, {"draws": draws})
