"""Deal classes to clients so that everyone gets the same number and no class is left over."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedquilt.errors import UserError

Mask = npt.NDArray[np.bool_]


def deal_with_owners(
    generator: np.random.Generator, *, clients: int, classes: int, each: int
) -> Mask:
    """(K, C): every class first gets an owner, then each client is filled up at random."""
    refuse_impossible_deal(clients=clients, classes=classes, each=each)
    mask = np.zeros((clients, classes), dtype=np.bool_)
    mask[np.arange(classes) % clients, generator.permutation(classes)] = True
    for row in mask:
        rest = np.flatnonzero(~row)
        row[generator.choice(rest, size=each - int(row.sum()), replace=False)] = True
    return mask


def deal_evenly(
    generator: np.random.Generator, *, clients: int, classes: int, each: int, dealings: int = 1
) -> Mask:
    """(dealings, K, C): within a dealing, two classes' numbers of holders differ by at most 1."""
    refuse_impossible_deal(clients=clients, classes=classes, each=each)
    holders = np.zeros((dealings, classes), dtype=np.int64)
    hands = np.zeros((dealings, clients, classes), dtype=np.bool_)
    for client in range(clients):
        # The classes with the fewest holders come next, in random order among equals.
        turn = np.argsort(holders + generator.random(holders.shape), axis=1, kind="stable")
        np.put_along_axis(hands[:, client], turn[:, :each], True, axis=1)
        holders += hands[:, client]
    return hands


def refuse_impossible_deal(*, clients: int, classes: int, each: int) -> None:
    if not 1 <= each <= classes:
        raise UserError(f"a client can have between 1 and {classes} of the classes, found {each}")
    if clients * each < classes:
        raise UserError(
            f"{clients} clients with {each} classes each reach at most {clients * each} of the "
            f"{classes} classes, so some class would have no client; use more clients, or at "
            f"least {-(-classes // clients)} classes per client"
        )
