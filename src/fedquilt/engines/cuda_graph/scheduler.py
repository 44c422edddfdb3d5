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


class ClientRound:
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

    def steps(self) -> Iterator[None]:
        """Play the round; after every step somebody else may have a turn."""
        self._open()  # only now: the device is at the first client's step while others get ready
        slot, local, done = self._slot, self._local, self._done
        for number, stage in enumerate(self._method.stages(local.round_index)):
            local.stage, local.stage_number = stage.name, number
            with slot.at_work():
                play = CapturedStage(slot, self._method, self._task, local, stage)
                play.begin(self._memories.get(stage.name, {}), self._received)
            yield from play.steps()
            with slot.at_work():
                local.state, memory = play.end()
            done.steps += play.step_count if stage.trains else 0
            if memory:
                done.memory[stage.name] = memory

    def _open(self) -> None:
        slot, method, workspace = self._slot, self._method, self._slot.workspace
        with slot.at_work():
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
            workspace.trained.write(method.initial_weights(self._local))
            self._local.state = method.begin(self._local)
            slot.loss.zero_()
        self._done = Training(slot.loss)

    def close(self) -> tuple[Update, State]:
        """What the client sends and keeps, still on the device and in the slot's layout.

        Nothing is waited for: see :meth:`require_finite_loss`.
        """
        self._slot.make_others_wait()
        weights = self._slot.workspace.trained.read()
        self._done.loss = self._slot.loss.clone()
        return close_round(self._method, self._local, weights, self._done)

    def require_finite_loss(self) -> None:
        """Wait until the client is done, and stop where its training has failed."""
        require_finite(self._done.loss, self._local)


HEAD_START = 8  # steps; with fewer the device would be done before the next visit is opened
ROUNDS_HELD = 2  # a slot: its client's, and one that waits for an earlier client


class Played(NamedTuple):
    name: str
    update: Update
    state: State


class _Guest(NamedTuple):
    slot: Slot
    visit: ClientRound
    steps: Iterator[None]


class Scheduler:
    """Plays a cohort in slots, a step of each guest in turn: the device works on all side by side.

    A slot that is free gets the next client at once, however long others take. Opening and closing
    a visit is work for the host: steps that are queued before the next visit is opened keep the
    device busy meanwhile, and a visit that is over is closed while others still play.

    Rounds are handed over in the cohort's order, as sums must not depend on who was first. So
    some wait for an earlier client, and while too many do, nobody new comes in.
    """

    def __init__(
        self,
        slots: Sequence[Slot],
        cohort: Sequence[str],
        choose: Callable[[Sequence[Slot], str], Slot],  # which of the free slots a client gets
        enter: Callable[[Slot, str], ClientRound],
        named: Callable[[str], AbstractContextManager[None]],  # adds a client's name to errors
    ) -> None:
        self._slots, self._choose, self._enter, self._named = slots, choose, enter, named
        self._free, self._waiting = list(slots), deque(cohort)
        self._owed = deque(cohort)
        self._guests: dict[str, _Guest] = {}
        self._over: dict[str, tuple[ClientRound, Update, State]] = {}

    def __iter__(self) -> Iterator[Played]:
        while self._owed:
            newcomers = self._let_in()
            is_time = self._is_time_to_hand_over()
            for name in list(self._guests):
                # Handing over waits for the device, which needs work until the host is back.
                has_more = name in newcomers or is_time
                self._take_turn(name, HEAD_START if has_more else 1)
            if is_time:
                yield from self._handed_over()

    def _let_in(self) -> set[str]:
        newcomers = set()
        most = ROUNDS_HELD * len(self._slots)
        while self._free and self._waiting and len(self._guests) + len(self._over) < most:
            name = self._waiting.popleft()
            slot = self._choose(self._free, name)
            self._free.remove(slot)
            visit = self._enter(slot, name)
            self._guests[name] = _Guest(slot, visit, visit.steps())
            newcomers.add(name)
        return newcomers

    def _take_turn(self, name: str, steps: int) -> None:
        slot, visit, own_steps = self._guests[name]
        with self._named(name):
            if sum(1 for _ in islice(own_steps, steps)) == steps:
                return
            self._over[name] = (visit, *visit.close())
        del self._guests[name]
        self._free.append(slot)

    def _is_time_to_hand_over(self) -> bool:
        """Seldom: only when the device has been given a slotful of work is any of it waited for."""
        is_enough = len(self._over) >= len(self._slots) or not self._guests
        return is_enough and self._owed[0] in self._over

    def _handed_over(self) -> Iterator[Played]:
        while self._owed and self._owed[0] in self._over:
            name = self._owed.popleft()
            visit, update, state = self._over.pop(name)
            with self._named(name):
                visit.require_finite_loss()
            yield Played(name, update, state)
