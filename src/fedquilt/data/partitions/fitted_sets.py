"""Class sets that fit drawn shares: a client holds the classes of which it has a large share."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedquilt.data.partitions.strata import Counts, Indices, Shares

Mask = npt.NDArray[np.bool_]


def fitted_sets(patterns: Mask, images: Counts, main: Indices, shares: Shares, budget: int) -> Mask:
    """(K, C) the classes of each client, at most ``budget``.

    Every class belongs to the client with its largest share. A client is then filled up, one class
    at a time, with the class that lets it keep most images: an image counts by the client's share
    of its main class, and for less the more of its classes the client lacks. Images that fit no
    client yet count in full, so that few stay without one.

    Args:
        patterns: (U, C) the distinct label vectors, none of them empty.
        images: (U,) how many images have it.
        main: (U,) the class whose shares decide who gets the image.
        shares: (C, K) of each class over the clients.
    """
    sets = _sets_of_largest_shares(shares, budget)
    covered = _fit(patterns, sets).any(axis=1)
    for client in np.argsort(-shares.sum(axis=0), kind="stable"):
        own = sets[client]
        while own.sum() < budget:
            missing = (patterns & ~own).sum(axis=1)
            worth = images * np.where(covered, shares[main, client], 1.0)
            gain = (worth / np.maximum(missing, 1) * (missing > 0)) @ patterns
            own[np.where(own, -1.0, gain).argmax()] = True
        covered |= _fit(patterns, own[None])[:, 0]
    return sets


def _sets_of_largest_shares(shares: Shares, budget: int) -> Mask:
    """Give every class to the client with its largest share that still has room."""
    classes, clients = shares.shape
    sets = np.zeros((clients, classes), dtype=np.bool_)
    for column in np.argsort(-shares.max(axis=1), kind="stable"):
        has_room = sets.sum(axis=1) < budget
        sets[np.where(has_room, shares[column], -1.0).argmax(), column] = True
    return sets


def _fit(patterns: Mask, sets: Mask) -> Mask:
    """(U, K): whether the client may hold all of the label vector's positives."""
    return np.asarray(patterns.astype(np.float32) @ (~sets.T).astype(np.float32) == 0)
