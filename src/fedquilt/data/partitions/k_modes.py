"""FLAG's clustering-based partition (CMDA): a client is a K-modes cluster of label vectors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedquilt.core.errors import UserError
from fedquilt.core.seeding import seed_for
from fedquilt.core.wording import counted
from fedquilt.data.dataset import LabelView, annotated_positives
from fedquilt.data.partitions.partition import (
    Assignment,
    Partition,
    check_client_count,
    numbered_clients,
)
from fedquilt.data.partitions.strata import Counts, Positives, label_patterns


@dataclass(frozen=True, kw_only=True)
class KModes(Partition):
    """Clusters images by their label vectors; the distance is the number of mismatching labels.

    FLAG's slides print the distance with "equal" and "different" swapped; mismatches are counted
    here.
    """

    clients: int
    largest_client: int | None = None  # images beyond this number move to the next nearest client
    iterations: int = 100  # at most

    def assign(self, data: LabelView, seed: int) -> Assignment:
        images = len(data.labels)
        check_client_count(self.clients, images)
        patterns, pattern_of = label_patterns(annotated_positives(data))
        if len(patterns) < self.clients:
            raise UserError(
                f"the data have {len(patterns)} different label vectors, too few for "
                f"{self.clients} clusters, one per client; use fewer clients"
            )
        counts = np.bincount(pattern_of, minlength=len(patterns))
        modes, history = find_modes(patterns, counts, self.clients, self.iterations)
        distance = mismatches(patterns, modes)
        client_of = distance.argmin(axis=1)[pattern_of]
        if self.largest_client is not None:
            if self.largest_client * self.clients < images:
                raise UserError(
                    f"{counted(self.clients, 'client')} of at most "
                    f"{counted(self.largest_client, 'image')} cannot hold "
                    f"{counted(images, 'image')}; raise largest_client to "
                    f"{-(-images // self.clients)} or more"
                )
            generator = np.random.default_rng(seed_for(seed, "partition", "k-modes"))
            client_of = limit_sizes(client_of, distance[pattern_of], self.largest_client, generator)
        names = numbered_clients(self.clients)
        return Assignment.from_clients(names, client_of, {"mismatches": history})


def mismatches(patterns: Positives, modes: Positives) -> Counts:
    """(U, K): the number of classes in which a label vector differs from a mode."""
    ones, modes_as_ones = patterns.astype(np.int64), modes.astype(np.int64)
    return ones @ (1 - modes_as_ones.T) + (1 - ones) @ modes_as_ones.T


def find_modes(
    patterns: Positives, counts: Counts, clusters: int, iterations: int
) -> tuple[Positives, list[int]]:
    """The modes (K, C) of non-empty clusters, and the total mismatch at each iteration."""
    modes = patterns[np.argsort(-counts, kind="stable")[:clusters]]  # the most frequent vectors
    history: list[int] = []
    before = None
    for _ in range(iterations):
        modes = fill_empty(patterns, modes)
        distance = mismatches(patterns, modes)
        nearest = distance.argmin(axis=1)  # a tie goes to the first cluster
        history.append(int(distance.min(axis=1) @ counts))
        if before is not None and np.array_equal(nearest, before):
            return modes, history
        before = nearest
        members = (nearest == np.arange(clusters)[:, None]) * counts  # (K, U) images
        modes = 2 * (members @ patterns) > members.sum(axis=1, keepdims=True)  # a tie gives 0
    return fill_empty(patterns, modes), history


def fill_empty(patterns: Positives, modes: Positives) -> Positives:
    """Restart each empty cluster at the label vector that is farthest from its nearest mode."""
    modes = modes.copy()
    while True:
        distance = mismatches(patterns, modes)
        empty = np.bincount(distance.argmin(axis=1), minlength=len(modes)) == 0
        if not empty.any():
            return modes
        modes[empty.argmax()] = patterns[distance.min(axis=1).argmax()]


def limit_sizes(
    client_of: Counts, distance: Counts, largest: int, generator: np.random.Generator
) -> Counts:
    """Move images out of clients with more than ``largest`` images.

    The images farthest from the mode leave, ties at random. Each goes to the nearest client with
    room. ``distance`` is (N, K).
    """
    client_of = client_of.copy()
    own = distance[np.arange(len(client_of)), client_of]
    order = np.lexsort((generator.random(len(client_of)), own, client_of))
    sizes = np.bincount(client_of, minlength=distance.shape[1])
    rank = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    leaving = order[rank >= largest]
    room = largest - np.minimum(sizes, largest)
    while len(leaving):  # each pass fills a client or places all images
        wanted = np.where(room > 0, distance[leaving], np.inf).argmin(axis=1)
        is_placed = np.zeros(len(leaving), dtype=np.bool_)
        for client in np.unique(wanted):
            taken = np.flatnonzero(wanted == client)[: room[client]]
            client_of[leaving[taken]] = client
            room[client] -= len(taken)
            is_placed[taken] = True
        leaving = leaving[~is_placed]
    return client_of
