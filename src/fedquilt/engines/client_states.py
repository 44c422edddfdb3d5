"""ClientStates: a store of client states between rounds, when one machine runs all clients."""

from __future__ import annotations

from typing import Protocol

from fedquilt.training.method import State


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
