"""Scheduler: assigns clients to slots, interleaves steps, emits updates in cohort order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from typing import NamedTuple

from fedquilt.core.payload import Update
from fedquilt.data.client_data import ClientData
from fedquilt.engines.cuda_graph.slot import Broadcast, Slot
from fedquilt.engines.cuda_graph.stage import CapturedStage
from fedquilt.training.client import Training, close_round, open_round, require_finite
from fedquilt.training.method import Method, State
from fedquilt.training.task import Task

LEAD_STEPS = 8  # queued per client before the host does other work; fewer leave the device idle
ROUNDS_PER_SLOT = 2  # the one that runs, and a finished one that waits for an earlier client


class ClientRound:
    """One client's round in a slot, step by step."""

    def __init__(
        self,
        slot: Slot,
        method: Method,
        task: Task,
        data: ClientData,
        broadcast: Broadcast,
        kept: State,
        round_index: int,
    ) -> None:
        self._slot, self._method, self._task = slot, method, task
        self._data, self._broadcast, self._kept = data, broadcast, kept
        self._round_index = round_index
        self._memories: State = kept.get("optimizer", {})
        self._steps = self._play()

    def take_steps(self, most: int) -> bool:
        """Queue up to so many steps; return whether there may be more."""
        with self._slot.on_stream():  # once, not for every step
            return sum(1 for _ in islice(self._steps, most)) == most

    def _play(self) -> Iterator[None]:
        """Run the round; yield after every step, so that other clients' steps can be queued."""
        self._open()  # only now: the device runs earlier clients' steps while others open
        slot, local, done = self._slot, self._local, self._done
        for number, stage in enumerate(self._method.stages(local.round_index)):
            local.stage, local.stage_number = stage.name, number
            captured = CapturedStage(slot, self._method, self._task, local, stage)
            captured.begin(self._memories.get(stage.name, {}), self._received)
            yield from captured.steps()
            local.state, memory = captured.end()
            done.steps += captured.step_count if stage.trains else 0
            if memory:
                done.memory[stage.name] = memory

    def _open(self) -> None:
        slot, method, workspace = self._slot, self._method, self._slot.workspace
        received = slot.receive(self._broadcast, self._data.name)
        self._received = received.signature
        self._local = open_round(
            method,
            self._task,
            workspace,
            self._data,
            received.tree,
            self._kept,
            self._round_index,
        )
        slot.weights.write(method.initial_weights(self._local))
        self._local.state = method.begin(self._local)
        slot.loss.zero_()
        self._done = Training(slot.loss)

    def close(self) -> tuple[Update, State]:
        """Return the client's update and state, still on the device and in the slot's layout.

        Does not wait for the device: see :meth:`require_finite_loss`.
        """
        self._slot.make_caller_wait()
        weights = self._slot.weights.read()
        self._done.loss = self._slot.loss.clone()
        return close_round(self._method, self._local, weights, self._done)

    def require_finite_loss(self) -> None:
        """Wait for the client's steps; raise UserError if its loss is not finite."""
        require_finite(self._done.loss, self._local)


class FinishedRound(NamedTuple):
    name: str
    update: Update
    state: State


class _RunningRound(NamedTuple):
    slot: Slot
    client_round: ClientRound


class Scheduler:
    """Runs a cohort in slots, one step of each client in turn, so the device runs them in parallel.

    A free slot takes the next client at once. Opening and closing a round is host work: steps
    queued before it keep the device busy meanwhile, and a finished round is closed while others
    still run.

    Rounds are emitted in cohort order, as sums must not depend on who finishes first. So finished
    rounds may wait for an earlier client; while too many wait, no further client starts.

    Args:
        slots: where clients run.
        cohort: the clients, in the order in which they start and are emitted.
        choose_slot: picks one of the free slots for a client.
        start_round: builds a client's round in a slot.
        in_errors: adds a client's name to errors.
    """

    def __init__(
        self,
        slots: Sequence[Slot],
        cohort: Sequence[str],
        choose_slot: Callable[[Sequence[Slot], str], Slot],
        start_round: Callable[[Slot, str], ClientRound],
        in_errors: Callable[[str], AbstractContextManager[None]],
    ) -> None:
        self._slots, self._in_errors = slots, in_errors
        self._choose_slot, self._start_round = choose_slot, start_round
        self._free, self._to_start = list(slots), deque(cohort)
        self._to_emit = deque(cohort)
        self._running: dict[str, _RunningRound] = {}
        self._finished: dict[str, tuple[ClientRound, Update, State]] = {}

    def __iter__(self) -> Iterator[FinishedRound]:
        while self._to_emit:
            started = self._start_clients()
            should_emit = self._should_emit()
            for name in list(self._running):
                # Emitting waits for the device, which needs queued work until the host is back.
                needs_lead = name in started or should_emit
                self._run_steps(name, LEAD_STEPS if needs_lead else 1)
            if should_emit:
                yield from self._emit()

    def _start_clients(self) -> set[str]:
        started = set()
        most = ROUNDS_PER_SLOT * len(self._slots)
        while self._free and self._to_start and len(self._running) + len(self._finished) < most:
            name = self._to_start.popleft()
            slot = self._choose_slot(self._free, name)
            self._free.remove(slot)
            self._running[name] = _RunningRound(slot, self._start_round(slot, name))
            started.add(name)
        return started

    def _run_steps(self, name: str, count: int) -> None:
        slot, client_round = self._running[name]
        with self._in_errors(name):
            if client_round.take_steps(count):
                return
            self._finished[name] = (client_round, *client_round.close())
        del self._running[name]
        self._free.append(slot)

    def _should_emit(self) -> bool:
        """Seldom, as emitting waits for the device: when a round per slot is finished, or all."""
        is_enough = len(self._finished) >= len(self._slots) or not self._running
        return is_enough and self._to_emit[0] in self._finished

    def _emit(self) -> Iterator[FinishedRound]:
        while self._to_emit and self._to_emit[0] in self._finished:
            name = self._to_emit.popleft()
            client_round, update, state = self._finished.pop(name)
            with self._in_errors(name):
                client_round.require_finite_loss()
            yield FinishedRound(name, update, state)
