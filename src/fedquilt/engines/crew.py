"""Crew: threads that play clients' rounds, as many at a time as there is memory for."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from queue import SimpleQueue
from typing import Any, TypeVar

import torch

from fedquilt.client import Interrupted, Workspace
from fedquilt.memory import available, growth

SHARE = 0.7  # of the available memory; clients differ, and the machine has other uses for it

log = logging.getLogger(__name__)
Item = TypeVar("Item")
Play = Callable[[Workspace, Item], Any]


class Crew:
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
