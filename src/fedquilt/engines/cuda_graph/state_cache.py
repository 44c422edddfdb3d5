"""Clients' states near the device: on it while there is room, then in pinned memory, then below."""

from __future__ import annotations

import torch

from fedquilt.core.tree import byte_count, flatten, moved, on_host, tree_map
from fedquilt.engines.client_states import ClientStates
from fedquilt.training.method import State


class StateCache:
    """A store in front of another one, which gets the states when :meth:`write_down` is called.

    A client's state may be as large as its model, and be needed again a second later: writing it
    to disk every round would take longer than training. What finds no room is written at once.
    What is held keeps the device's layout.
    """

    def __init__(
        self, below: ClientStates, device: torch.device, *, device_bytes: int, host_bytes: int
    ) -> None:
        self._below = below
        self._device = device
        self._room = {"device": device_bytes, "host": host_bytes}
        self._held: dict[str, tuple[str, State]] = {}
        self._unwritten: set[str] = set()

    def get(self, client: str) -> State:
        return self._held[client][1] if client in self._held else self._below.get(client)

    def put(self, client: str, state: State) -> None:
        self._release(client)
        size = byte_count(state)
        tier = next((name for name, room in self._room.items() if size <= room), None)
        if tier is None:
            self._unwritten.discard(client)
            self._below.put(client, on_host(state))
            return
        self._room[tier] -= size
        kept = moved(state, self._device) if tier == "device" else self._pinned(state)
        self._held[client] = (tier, kept)
        self._unwritten.add(client)

    def write_down(self) -> None:
        """Hand everything that changed to the store below, before a checkpoint."""
        for client in sorted(self._unwritten):
            self._below.put(client, on_host(self.get(client)))
        self._unwritten.clear()

    def _release(self, client: str) -> None:
        if client in self._held:
            tier, state = self._held.pop(client)
            self._room[tier] += byte_count(state)

    def _pinned(self, state: State) -> State:
        """In memory that a GPU can read by itself; on a CPU it is memory like any other."""
        is_gpu = self._device.type == "cuda"
        places: State = tree_map(
            lambda leaf: torch.empty_like(leaf, device="cpu", pin_memory=is_gpu), state
        )
        if targets := [*flatten(places).values()]:
            torch._foreach_copy_(targets, [*flatten(state).values()], non_blocking=True)
        if is_gpu:  # once, not for every tensor; then the state's own memory may be used again
            torch.cuda.current_stream(self._device).synchronize()
        return places
