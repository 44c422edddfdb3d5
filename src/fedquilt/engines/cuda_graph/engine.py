"""CudaGraphEngine: many clients at once on one GPU, each step a captured CUDA graph."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from fedquilt.core.aggregation_rules import PLAIN_RULES, AggregationRules
from fedquilt.core.payload import Update, placed
from fedquilt.core.seeding import seed_network_draws
from fedquilt.core.totals import Totals
from fedquilt.core.tree import on_host, tree_map
from fedquilt.data.client_data import ClientData
from fedquilt.engines.client_states import ClientStates
from fedquilt.engines.cuda_graph.device_memory import (
    Buffers,
    on_device,
    out_of_memory_advice,
    training_advice,
)
from fedquilt.engines.cuda_graph.kernel_search import DeviceShare, has_attention, share_of
from fedquilt.engines.cuda_graph.scheduler import ClientRound, Scheduler
from fedquilt.engines.cuda_graph.slot import Broadcast, Slot
from fedquilt.engines.cuda_graph.state_cache import StateCache
from fedquilt.engines.options import SLOTS
from fedquilt.engines.sequential import SequentialEngine, client_in_errors
from fedquilt.metrics.pseudo_labels import PseudoLabelAudit
from fedquilt.privacy.transform import PayloadTransform
from fedquilt.training.activity import ActivityTally
from fedquilt.training.client_step import names_of_draws
from fedquilt.training.method import Method, State
from fedquilt.training.task import Task

PINNED_BYTES = 2**34  # for client states that do not fit on the device


class CudaGraphEngine(SequentialEngine):
    """Runs the cohort in slots, which are reused until every client has had its round.

    Images are kept on the device as bytes. With ``exact``, augmentation draws from the sequential
    engine's generators and training uses float32 and deterministic kernels, to compare the two
    engines; without it, draws are made on the device, which is faster. Client states stay on the
    device up to ``device_state_bytes``, by default a quarter of its memory.
    """

    caches_states: ClassVar[bool] = True

    def __init__(  # noqa: PLR0913 (options by name)
        self,
        task: Task,
        clients: Mapping[str, ClientData],
        *,
        states: ClientStates | None = None,
        audit: PseudoLabelAudit | None = None,
        tally: ActivityTally | None = None,
        device: str = "cuda",
        slots: int = SLOTS,
        exact: bool = False,
        channels_last: bool = True,
        device_state_bytes: int | None = None,
        transforms: Sequence[PayloadTransform] = (),
        rules: AggregationRules = PLAIN_RULES,
    ) -> None:
        super().__init__(
            task,
            clients,
            states=states,
            audit=audit,
            tally=tally,
            device=device,
            transforms=transforms,
            rules=rules,
        )
        where = self.workspace.device
        with out_of_memory_advice(
            "use smaller images, or keep them on the host with --engine sequential"
        ):
            self._on_device = on_device(clients, where, channels_last=channels_last)
        self._cache = StateCache(
            self._states,
            where,
            device_bytes=state_bytes(where) if device_state_bytes is None else device_state_bytes,
            host_bytes=PINNED_BYTES,
        )
        self._states = self._cache
        self._exact, self._channels_last = exact, channels_last
        self._slot_limit = slots
        self._slots: list[Slot] = []
        self._buffers = Buffers(channels_last=channels_last)
        self._share: DeviceShare | None = None
        self._method: Method | None = None
        self._is_cuda = self.workspace.device.type == "cuda"

    def write_states(self) -> None:
        self._cache.flush()

    @property
    def capture_failure(self) -> str | None:
        """Why the method's steps could not be captured; None if they could."""
        return next((slot.capture_failure for slot in self._slots if slot.capture_failure), None)

    def exchange(
        self, method: Method, payload: State, round_index: int, cohort: Sequence[str]
    ) -> Totals:
        with out_of_memory_advice(training_advice(min(len(cohort), self._slot_limit))):
            self._prepare_slots(method, len(cohort))
            # Hooks that cannot be captured run at every step, and may leave cycles.
            collector = nullcontext() if self.capture_failure else garbage_collection_paused()
            with self._cudnn_flags(), collector:
                totals = super().exchange(method, payload, round_index, cohort)
        return replace(
            totals,
            sums=tree_map(torch.Tensor.contiguous, totals.sums),  # once, not per client
            gathered=on_host(tree_map(torch.Tensor.contiguous, totals.gathered)),
        )

    def _run_clients(
        self, method: Method, payload: State, round_index: int, cohort: Sequence[str]
    ) -> Iterator[tuple[str, Update, State]]:
        device = self.workspace.device
        here = Broadcast(payload, self._buffers, self._to_layout)
        scheduler = Scheduler(
            self._slots,
            cohort,
            choose_slot=lambda free, name: self._slot_for(free, name, method.training.batch_size),
            start_round=lambda slot, name: self._start_round(slot, name, method, here, round_index),
            in_errors=lambda name: client_in_errors(name, method, round_index),
        )
        # Dropout and similar layers draw from torch's global generators.
        with torch.random.fork_rng(devices=[device] if self._is_cuda else []):
            for name, update, state in scheduler:
                yield name, placed(update, device), state

    def _slot_for(self, free: Sequence[Slot], name: str, batch_size: int) -> Slot:
        """Prefer a slot that has captured a tail batch of the client's size."""
        tail = len(self._clients[name]) % batch_size
        slot = next((slot for slot in free if tail in slot.tail_sizes), free[0])
        slot.tail_sizes.add(tail)
        return slot

    def _start_round(
        self, slot: Slot, name: str, method: Method, broadcast: Broadcast, round_index: int
    ) -> ClientRound:
        data, kept = self._on_device[name], self._states.get(name)
        slot.wait_for_caller()  # after both: their copies may still be running
        names = names_of_draws(self._task, name, round_index)
        seed_network_draws(self.workspace.device, *names, "network")  # as run_client does
        with client_in_errors(name, method, round_index):
            if "method" not in kept:
                kept = {"method": method.init_client(self._clients[name])}
            return ClientRound(slot, method, self._task, data, broadcast, kept, round_index)

    def _to_layout(self, leaf: Tensor) -> Tensor:
        """Move to the device, in the slots' memory format: copies between equal ones are fused."""
        here = leaf.to(self.workspace.device, non_blocking=True)
        if not self._channels_last or leaf.ndim != 4:
            return here
        return here.contiguous(memory_format=torch.channels_last)

    def _prepare_slots(self, method: Method, cohort_size: int) -> None:
        """Add slots up to the limit, and clear those of another method."""
        if method != self._method:
            for slot in self._slots:
                slot.clear()
            self._buffers.clear()
            self._method = method
        wanted = min(cohort_size, self._slot_limit)
        if not self._slots:
            self._share = self._search_share(wanted)
        while len(self._slots) < wanted:
            self._slots.append(
                Slot(
                    self._task,
                    self.workspace.frozen,
                    self.workspace.device,
                    channels_last=self._channels_last,
                    draws_on_device=self._is_cuda and not self._exact,
                    share=self._share,
                )
            )

    def _search_share(self, slots: int) -> DeviceShare | None:
        """Return the share for the kernel search; None if it cannot or need not have one."""
        if self._exact or has_attention(self.workspace.training):
            return None
        return share_of(self.workspace.device, slots)

    def _cudnn_flags(self) -> AbstractContextManager[object]:
        if not self._is_cuda:
            return nullcontext()
        exact = self._exact
        return torch.backends.cudnn.flags(
            enabled=True, benchmark=not exact, deterministic=exact, allow_tf32=not exact
        )


def state_bytes(device: torch.device) -> int:
    """Return the default limit: a quarter of a GPU's memory; 1 GiB on a CPU, where it is moot."""
    if device.type != "cuda":
        return 2**30
    return torch.cuda.get_device_properties(device).total_memory // 4


@contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """Pause Python's search for reference cycles.

    A search takes 0.2 s with 400,000 objects in the process, and every new tensor brings the next
    one nearer. Rounds leave no cycles: ``tests/contracts/test_garbage.py``.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
