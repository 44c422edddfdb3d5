"""StateCache: client states on the device while they fit, then pinned, then in a store."""

from __future__ import annotations

import torch
from torch import Tensor

from fedquilt.core.tree import byte_count, map_together, moved, on_host
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
        kept = moved(_owned(state), self._device) if tier == "device" else self._pinned(state)
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

        def copied(found: list[Tensor]) -> list[Tensor]:
            places = [torch.empty_like(each, device="cpu", pin_memory=is_gpu) for each in found]
            torch._foreach_copy_(places, found, non_blocking=True)
            return places

        buffers: State = map_together(copied, state)
        if is_gpu:  # once, not per tensor; then the state's device memory may be reused
            torch.cuda.current_stream(self._device).synchronize()
        return buffers


def _owned(state: State) -> State:
    """Copy what is a small piece of a larger tensor, which it would keep in memory."""

    def own(found: list[Tensor]) -> list[Tensor]:
        return [
            each.clone() if each.untyped_storage().nbytes() > 2 * each.nbytes else each
            for each in found
        ]

    kept: State = map_together(own, state)
    return kept
