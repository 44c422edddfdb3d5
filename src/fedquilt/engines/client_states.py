"""Where clients' states wait between rounds, when one machine plays all clients."""

from __future__ import annotations

from typing import Protocol

from fedquilt.training.method import State


class ClientStates(Protocol):
    def get(self, client: str) -> State:
        """The client's state, empty before its first round."""

    def put(self, client: str, state: State) -> None: ...


class StatesInMemory:
    """For runs that leave nothing on disk."""

    def __init__(self) -> None:
        self._states: dict[str, State] = {}

    def get(self, client: str) -> State:
        return self._states.get(client, {})

    def put(self, client: str, state: State) -> None:
        self._states[client] = state
