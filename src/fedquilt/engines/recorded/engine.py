"""RecordedEngine: many clients at once on one GPU, each step a recording played on a stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from itertools import islice
from typing import ClassVar

import torch
from torch import Tensor

from fedquilt.audit import PseudoLabelAudit
from fedquilt.client_states import ClientStates
from fedquilt.data.client_data import ClientData
from fedquilt.engines.local import LocalEngine, named_in_errors
from fedquilt.engines.recorded.device_data import on_device
from fedquilt.engines.recorded.device_share import DeviceShare, share_of
from fedquilt.engines.recorded.held_states import HeldStates
from fedquilt.engines.recorded.slot import Slot
from fedquilt.engines.recorded.stage_play import Manner
from fedquilt.engines.recorded.visit import Visit
from fedquilt.local_steps import names_of_draws
from fedquilt.method import Method, State
from fedquilt.payload import PerClient, Update, addressed, placed
from fedquilt.privacy.transform import PayloadTransform
from fedquilt.seeding import seed_network_draws
from fedquilt.task import Task
from fedquilt.totals import Totals
from fedquilt.tree import on_host, tree_map

SLOTS = 16
HEAD_START = 8  # steps; with fewer the device would be done before the next visit is opened
PATIENCE = 2  # recording a step takes about as long as playing it so often without
PINNED_BYTES = 2**34


class RecordedEngine(LocalEngine):
    """Plays the cohort in as many slots as there are, again and again until all had their round.

    The images lie on the device as bytes. ``exact`` draws augmentation as the reference engine
    does and computes in whole float32 with deterministic kernels, to compare the two engines;
    without it draws are made on the device, which is faster and as random. Clients' states stay
    on the device up to ``device_state_bytes``, by default a quarter of its memory.
    """

    holds_states: ClassVar[bool] = True

    def __init__(
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
        self._on_device = on_device(clients, where, channels_last=channels_last)
        self._held = HeldStates(
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
        self._prepare(method, len(cohort))
        with self._kernels():
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
        here = {
            name: part if isinstance(part, PerClient) else tree_map(self._laid_out, part)
            for name, part in payload.items()
        }
        has_own_slots = len(self._clients) <= len(self._slots)  # then rests come again for sure
        manner = Manner(self._is_cuda and not self._exact, 0 if has_own_slots else PATIENCE)
        waiting = iter(cohort)
        while wave := list(islice(waiting, len(self._slots))):
            with self._own_randomness(wave[0], round_index):
                visits = {
                    name: self._visit(slot, name, method, here, round_index, manner)
                    for slot, name in zip(self._slots, wave)
                }
                closed = {}
                for name in self._play(visits, method, round_index):
                    with named_in_errors(name, method, round_index):
                        closed[name] = visits[name].close()
                # Only when the device has been given all its work is any of it waited for.
                for name in wave:
                    with named_in_errors(name, method, round_index):
                        visits[name].require_finite_loss()
                    update, state = closed.pop(name)
                    yield name, placed(update, device), state

    def _visit(
        self,
        slot: Slot,
        name: str,
        method: Method,
        payload: State,
        round_index: int,
        manner: Manner,
    ) -> Visit:
        received = {
            part: tree_map(self._laid_out, value) if isinstance(payload[part], PerClient) else value
            for part, value in addressed(payload, name).items()
        }
        data, kept = self._on_device[name], self._states.get(name)
        slot.wait_for_others()  # after these: their copies may still be on their way
        with named_in_errors(name, method, round_index):
            if "method" not in kept:
                kept = {"method": method.init_client(self._clients[name])}
            return Visit(slot, method, self._task, data, received, kept, round_index, manner)

    def _laid_out(self, leaf: Tensor) -> Tensor:
        """On the device, in memory as in the slots: copies into equal layouts are one call."""
        here = leaf.to(self.workspace.device)
        if not self._channels_last or leaf.ndim != 4:
            return here
        return here.contiguous(memory_format=torch.channels_last)

    def _play(self, visits: Mapping[str, Visit], method: Method, round_index: int) -> Iterator[str]:
        """All visits, a step of each in turn: the device works on them side by side.

        Names come as their visits are over. Opening and closing a visit is work for the host. Steps
        that are queued before the next visit is opened keep the device busy meanwhile, and a
        visit that is over is closed while others still play.
        """
        playing = {name: visit.steps() for name, visit in visits.items()}
        turn = HEAD_START
        while playing:
            for name in list(playing):
                with named_in_errors(name, method, round_index):
                    taken = sum(1 for _ in islice(playing[name], turn))
                if taken < turn:
                    del playing[name]
                    yield name
            turn = 1

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
                    share=self._share,
                )
            )

    def _share_to_search_on(self, slots: int) -> DeviceShare | None:
        """None where kernels are not searched for, but given."""
        return None if self._exact else share_of(self.workspace.device, slots)

    @contextmanager
    def _own_randomness(self, first: str, round_index: int) -> Iterator[None]:
        """Dropout and the like draw from torch's own generators, seeded as in the reference."""
        devices = [self.workspace.device] if self._is_cuda else []
        with torch.random.fork_rng(devices=devices):
            names = names_of_draws(self._task, first, round_index)
            seed_network_draws(self.workspace.device, *names, "network")
            yield

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
