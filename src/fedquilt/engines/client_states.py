"""ClientStates: a store of client states between rounds, when one machine runs all clients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from fedquilt.core.payload import addressed
from fedquilt.core.tree import Weights, on_host
from fedquilt.training.method import Method, State


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


def personal_weights(
    method: Method, payload: State, states: ClientStates, clients: Iterable[str]
) -> Iterator[tuple[str, Weights]]:
    """Yield each client's own model, for methods without a global one."""
    for name in sorted(clients):
        state = on_host(states.get(name).get("method", {}))  # as the payload
        if state:
            yield name, method.client_weights(addressed(payload, name), state)
