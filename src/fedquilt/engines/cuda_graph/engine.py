"""CudaGraphEngine: many clients at once on one GPU, each step a captured CUDA graph."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from fedquilt.core.payload import Update, placed
from fedquilt.core.seeding import seed_network_draws
from fedquilt.core.totals import Totals
from fedquilt.core.tree import on_host, tree_map
from fedquilt.data.client_data import ClientData
from fedquilt.engines.choice import SLOTS
from fedquilt.engines.client_states import ClientStates
from fedquilt.engines.cuda_graph.device_memory import advice_if_full, fewer_at_a_time, on_device
from fedquilt.engines.cuda_graph.kernel_search import DeviceShare, share_of
from fedquilt.engines.cuda_graph.scheduler import ClientRound, Scheduler
from fedquilt.engines.cuda_graph.slot import Broadcast, Slot
from fedquilt.engines.cuda_graph.state_cache import StateCache
from fedquilt.engines.sequential import SequentialEngine, named_in_errors
from fedquilt.metrics.pseudo_labels import PseudoLabelAudit
from fedquilt.privacy.transform import PayloadTransform
from fedquilt.training.client_step import names_of_draws
from fedquilt.training.method import Method, State
from fedquilt.training.task import Task


@contextmanager
def no_search_for_garbage() -> Iterator[None]:
    """Within it, only what nothing refers to is freed, and cycles stay until afterwards.

    A search through all objects of the process takes 0.2 s where there are 400,000, and every new
    tensor brings the next one nearer. Rounds leave no cycles: ``tests/contracts/test_garbage.py``.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


PINNED_BYTES = 2**34


class CudaGraphEngine(SequentialEngine):
    """Plays the cohort in as many slots as there are, again and again until all had their round.

    The images lie on the device as bytes. ``exact`` draws augmentation as the reference engine
    does and computes in whole float32 with deterministic kernels, to compare the two engines;
    without it draws are made on the device, which is faster and as random. Clients' states stay
    on the device up to ``device_state_bytes``, by default a quarter of its memory.
    """

    holds_states: ClassVar[bool] = True

    def __init__(  # noqa: PLR0913 (options by name)
        self,
        task: Task,
        clients: Mapping[str, ClientData],
        *,
        states: ClientStates | None = None,
        audit: PseudoLabelAudit | None = None,
        device: str = "cuda",
        slots: int = SLOTS,
        exact: bool = False,
        channels_last: bool = True,
        device_state_bytes: int | None = None,
        transforms: Sequence[PayloadTransform] = (),
    ) -> None:
        super().__init__(
            task, clients, states=states, audit=audit, device=device, transforms=transforms
        )
        where = self.workspace.device
        with advice_if_full(
            "take smaller images, or leave them on the host with --engine sequential"
        ):
            self._on_device = on_device(clients, where, channels_last=channels_last)
        self._held = StateCache(
            self._states,
            where,
            device_bytes=state_bytes(where) if device_state_bytes is None else device_state_bytes,
            host_bytes=PINNED_BYTES,
        )
        self._states = self._held
        self._exact, self._channels_last = exact, channels_last
        self._slot_limit = slots
        self._slots: list[Slot] = []
        self._share: DeviceShare | None = None
        self._method: Method | None = None
        self._is_cuda = self.workspace.device.type == "cuda"

    def write_states(self) -> None:
        self._held.write_down()

    @property
    def unrecordable(self) -> str | None:
        """Why the method's steps could not be recorded; None if they could."""
        return next((slot.unrecordable for slot in self._slots if slot.unrecordable), None)

    def exchange(
        self, method: Method, payload: State, round_index: int, cohort: Sequence[str]
    ) -> Totals:
        with advice_if_full(fewer_at_a_time(min(len(cohort), self._slot_limit))):
            self._prepare(method, len(cohort))
            # Hooks that cannot be recorded are called at every step, and may leave cycles.
            undisturbed = nullcontext() if self.unrecordable else no_search_for_garbage()
            with self._kernels(), undisturbed:
                totals = super().exchange(method, payload, round_index, cohort)
        return replace(
            totals,
            sums=tree_map(torch.Tensor.contiguous, totals.sums),  # once, not for each client
            gathered=on_host(tree_map(torch.Tensor.contiguous, totals.gathered)),
        )

    def _played(
        self, method: Method, payload: State, round_index: int, cohort: Sequence[str]
    ) -> Iterator[tuple[str, Update, State]]:
        device = self.workspace.device
        here = Broadcast(payload, self._laid_out)
        turns = Scheduler(
            self._slots,
            cohort,
            choose=lambda free, name: self._slot_for(free, name, method.training.batch_size),
            enter=lambda slot, name: self._visit(slot, name, method, here, round_index),
            named=lambda name: named_in_errors(name, method, round_index),
        )
        # Dropout and the like draw from torch's own generators.
        with torch.random.fork_rng(devices=[device] if self._is_cuda else []):
            for name, update, state in turns:
                yield name, placed(update, device), state

    def _slot_for(self, free: Sequence[Slot], name: str, batch_size: int) -> Slot:
        """One that has recorded a rest of the client's length before, if there is any."""
        rest = len(self._clients[name]) % batch_size
        slot = next((slot for slot in free if rest in slot.rests_met), free[0])
        slot.rests_met.add(rest)
        return slot

    def _visit(
        self, slot: Slot, name: str, method: Method, broadcast: Broadcast, round_index: int
    ) -> ClientRound:
        data, kept = self._on_device[name], self._states.get(name)
        slot.wait_for_others()  # after these: their copies may still be on their way
        names = names_of_draws(self._task, name, round_index)
        seed_network_draws(self.workspace.device, *names, "network")  # as in the reference
        with named_in_errors(name, method, round_index):
            if "method" not in kept:
                kept = {"method": method.init_client(self._clients[name])}
            return ClientRound(slot, method, self._task, data, broadcast, kept, round_index)

    def _laid_out(self, leaf: Tensor) -> Tensor:
        """On the device, in memory as in the slots: copies into equal layouts are one call."""
        here = leaf.to(self.workspace.device, non_blocking=True)
        if not self._channels_last or leaf.ndim != 4:
            return here
        return here.contiguous(memory_format=torch.channels_last)

    def _prepare(self, method: Method, cohort_size: int) -> None:
        """As many slots as are needed, with nothing in them of another method."""
        if method != self._method:
            for slot in self._slots:
                slot.forget()
            self._method = method
        wanted = min(cohort_size, self._slot_limit)
        if not self._slots:
            self._share = self._share_to_search_on(wanted)
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

    def _share_to_search_on(self, slots: int) -> DeviceShare | None:
        """None where kernels are not searched for, but given."""
        return None if self._exact else share_of(self.workspace.device, slots)

    def _kernels(self) -> AbstractContextManager[object]:
        if not self._is_cuda:
            return nullcontext()
        exact = self._exact
        return torch.backends.cudnn.flags(
            enabled=True, benchmark=not exact, deterministic=exact, allow_tf32=not exact
        )


def state_bytes(device: torch.device) -> int:
    """A quarter of the device's memory; on a CPU, where states are only passed on, some."""
    if device.type != "cuda":
        return 2**30
    return torch.cuda.get_device_properties(device).total_memory // 4
