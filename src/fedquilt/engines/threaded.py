"""ThreadedEngine: several clients at a time, in threads, sized by available memory."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from queue import SimpleQueue
from typing import Any, TypeVar

import torch

from fedquilt.core.payload import Update, addressed
from fedquilt.engines.host_memory import available, growth
from fedquilt.engines.sequential import SequentialEngine, named_in_errors
from fedquilt.training.client import Interrupted, Workspace, run_client
from fedquilt.training.method import Method, State

SHARE = 0.7  # of the available memory; clients differ, and the machine has other uses for it

log = logging.getLogger(__name__)
Item = TypeVar("Item")
Play = Callable[[Workspace, Item], Any]


class ClientPool:
    """A thread plays when it has a workspace. The first plays alone and shows what a round takes.

    How many play at a time changes when a round is done, and never what it gives: ``threads_each``
    is for torch's own threads in a round, and rounding depends on these.
    """

    def __init__(self, workspace: Workspace, size: int, threads_each: int) -> None:
        self.size = size
        self._interrupt = workspace.interrupt
        self._free: SimpleQueue[Workspace] = SimpleQueue()
        self._free.put(workspace)
        self._is_measured = False
        self._threads = ThreadPoolExecutor(
            size, "client", initializer=torch.set_num_threads, initargs=(threads_each,)
        )

    def in_order(
        self, play: Play[Item], items: Iterable[Item], *, ahead: int | None = None
    ) -> Generator[Any]:
        """What ``play`` gives for each item, in their order; some are played ``ahead``.

        By default twice as many as there are threads, so that a long one holds up nobody.
        """
        playing: deque[Future[Any]] = deque()
        try:
            for item in items:
                playing.append(self._threads.submit(self._play, play, item))
                if len(playing) == (ahead or 2 * self.size):
                    yield _first(playing)
            while playing:
                yield _first(playing)
        finally:  # also where one failed, or the caller wants no more
            self._interrupt.set()
            wait([future for future in playing if not future.cancel()])
            self._interrupt.clear()

    def _play(self, play: Play[Item], item: Item) -> Any:
        workspace = self._free.get()
        try:
            if self._interrupt.is_set():  # while it waited for a workspace
                raise Interrupted
            if self._is_measured:
                return play(workspace, item)
            with growth() as grown:
                result = play(workspace, item)
            self._is_measured = True
            beside = room_beside(grown.most, self.size - 1)
            if beside < self.size - 1:
                log.warning("memory is short: %d of %d clients at a time", 1 + beside, self.size)
            for _ in range(beside):
                self._free.put(workspace.twin())
            return result
        finally:
            self._free.put(workspace)


def _first(playing: deque[Future[Any]]) -> Any:
    """Its result; it stays among those that play until it is done, or nobody would stop it."""
    result = playing[0].result()
    playing.popleft()
    return result


def room_beside(need: int | None, wanted: int) -> int:
    """How many more of that need fit into memory, at most those wanted."""
    there = available()
    if not need or there is None:
        return wanted
    return max(0, min(wanted, int(SHARE * there / need)))


class ThreadedEngine(SequentialEngine):
    """The sequential engine's results, faster: one core per client instead of all for one step.

    Dropout and the like draw from torch's own generator, which threads share. A client that may
    have drawn from it is run again, alone, and so are all that follow.
    """

    _crew: ClientPool | None = None
    _drawing: Method | None = None  # the method that was seen to draw

    def _played(
        self, method: Method, payload: State, round_index: int, cohort: Sequence[str]
    ) -> Iterator[tuple[str, Update, State]]:
        def play(workspace: Workspace, given: tuple[str, State]) -> tuple[Update, State]:
            name, kept = given
            data, received = self._clients[name], addressed(payload, name)
            with named_in_errors(name, method, round_index):
                return run_client(
                    method,
                    self._task,
                    workspace,
                    data,
                    received,
                    kept,
                    round_index,
                    has_own_draws=is_alone,
                )

        crew, left = self._crew_for(len(cohort)), list(cohort)
        untouched = torch.default_generator.get_state()
        while left:
            is_alone = method == self._drawing
            given = ((name, self._states.get(name)) for name in tuple(left))
            try:
                with closing(crew.in_order(play, given, ahead=1 if is_alone else None)) as results:
                    for update, state in results:
                        if not torch.equal(torch.default_generator.get_state(), untouched):
                            self._drawing = method
                            break
                        yield left.pop(0), update, state
            finally:
                torch.default_generator.set_state(untouched)  # only now nobody draws any more

    def _crew_for(self, clients: int) -> ClientPool:
        cores = torch.get_num_threads()
        size = min(cores, clients)
        if self._crew is None or self._crew.size != size:
            self._crew = ClientPool(self.workspace, size, threads_each=cores // size)
        return self._crew
