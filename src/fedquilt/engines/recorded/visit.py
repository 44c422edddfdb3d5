"""A visit: one client's round in a slot, step by step, so that several can take turns."""

from __future__ import annotations

from collections.abc import Iterator

from fedquilt.client import Training, close_round, open_round, require_finite
from fedquilt.data.client_data import ClientData
from fedquilt.engines.recorded.broadcast import Broadcast
from fedquilt.engines.recorded.slot import Slot
from fedquilt.engines.recorded.stage_play import StagePlay
from fedquilt.method import Method, State
from fedquilt.payload import Update
from fedquilt.task import Task


class Visit:
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
                play = StagePlay(slot, self._method, self._task, local, stage)
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
            workspace.trained.write(method.start(self._local))
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
