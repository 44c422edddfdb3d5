"""ClientStates: a store of client states between rounds, when one machine runs all clients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

import torch
from torch import Tensor

from fedquilt.core.payload import addressed
from fedquilt.core.tree import Weights, on_host, tree_map
from fedquilt.training.method import Method, State

LEAST = 64  # numbers; storing a smaller tensor in bfloat16 would save nothing


class ClientStates(Protocol):
    def get(self, client: str) -> State:
        """Return the client's state, empty before its first round."""

    def put(self, client: str, state: State) -> None: ...


class StatesInMemory:
    """For runs that write nothing to disk."""

    def __init__(self) -> None:
        self._states: dict[str, State] = {}

    def get(self, client: str) -> State:
        return self._states.get(client, {})

    def put(self, client: str, state: State) -> None:
        self._states[client] = state


class HalvedStates:
    """Stores the large float32 tensors of states in bfloat16, whatever store is behind it.

    The outermost store of an engine: a client's next round starts from the same numbers whether
    its state was cached or read from disk.
    """

    def __init__(self, store: ClientStates) -> None:
        self._store = store

    def get(self, client: str) -> State:
        state: State = tree_map(_restored, self._store.get(client))
        return state

    def put(self, client: str, state: State) -> None:
        self._store.put(client, halved(state))


def halved(state: State) -> State:
    """Return the state as it is stored in bfloat16; small tensors stay as they are."""
    stored: State = tree_map(_halved, state)
    return stored


def _halved(leaf: Tensor) -> Tensor:
    is_large = leaf.dtype == torch.float32 and leaf.numel() >= LEAST
    return leaf.to(torch.bfloat16) if is_large else leaf


def _restored(leaf: Tensor) -> Tensor:
    return leaf.float() if leaf.dtype == torch.bfloat16 else leaf


def personal_weights(
    method: Method, payload: State, states: ClientStates, clients: Iterable[str]
) -> Iterator[tuple[str, Weights]]:
    """Yield each client's own model, for methods without a global one."""
    for name in sorted(clients):
        state = on_host(states.get(name).get("method", {}))  # as the payload
        if state:
            yield name, method.client_weights(addressed(payload, name), state)
