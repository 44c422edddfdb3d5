"""StateCache: client states on the device while they fit, then pinned, then in a store."""

from __future__ import annotations

import torch

from fedquilt.core.tree import byte_count, flatten, moved, on_host, tree_map
from fedquilt.engines.client_states import ClientStates
from fedquilt.training.method import State


class StateCache:
    """A write-back cache in front of a store, which receives the states on :meth:`flush`.

    A client's state can be as large as its model and be needed again a second later: writing it to
    disk every round would take longer than training. A state that does not fit is written at once.
    Cached states keep the device's memory format.
    """

    def __init__(
        self, store: ClientStates, device: torch.device, *, device_bytes: int, host_bytes: int
    ) -> None:
        self._store = store
        self._device = device
        self._free_bytes = {"device": device_bytes, "host": host_bytes}
        self._cached: dict[str, tuple[str, State]] = {}
        self._unwritten: set[str] = set()

    def get(self, client: str) -> State:
        return self._cached[client][1] if client in self._cached else self._store.get(client)

    def put(self, client: str, state: State) -> None:
        self._evict(client)
        size = byte_count(state)
        tier = next((name for name, free in self._free_bytes.items() if size <= free), None)
        if tier is None:
            self._unwritten.discard(client)
            self._store.put(client, on_host(state))
            return
        self._free_bytes[tier] -= size
        kept = moved(state, self._device) if tier == "device" else self._pinned(state)
        self._cached[client] = (tier, kept)
        self._unwritten.add(client)

    def flush(self) -> None:
        """Write every changed state to the store; called before a checkpoint."""
        for client in sorted(self._unwritten):
            self._store.put(client, on_host(self.get(client)))
        self._unwritten.clear()

    def _evict(self, client: str) -> None:
        if client in self._cached:
            tier, state = self._cached.pop(client)
            self._free_bytes[tier] += byte_count(state)

    def _pinned(self, state: State) -> State:
        """Copy to pinned memory; for a CPU device, to ordinary memory."""
        is_gpu = self._device.type == "cuda"
        buffers: State = tree_map(
            lambda leaf: torch.empty_like(leaf, device="cpu", pin_memory=is_gpu), state
        )
        if targets := [*flatten(buffers).values()]:
            torch._foreach_copy_(targets, [*flatten(state).values()], non_blocking=True)
        if is_gpu:  # once, not per tensor; then the state's device memory may be reused
            torch.cuda.current_stream(self._device).synchronize()
        return buffers
