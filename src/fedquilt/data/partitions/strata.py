"""Spread groups of alike images over clients, each group by its own Dirichlet shares."""

from __future__ import annotations

import numpy as np

from fedquilt.data.partitions.partition import (
    DROPPED,
    Assignment,
    numbered_clients,
    refuse_impossible_count,
    refuse_non_positive,
)
from fedquilt.data.partitions.shares import Indices, first_accepted, restricted


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
