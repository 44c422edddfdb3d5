"""ThreadedEngine: several clients at a time, in a thread pool sized by available memory."""

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
from fedquilt.engines.host_memory import available_bytes, peak_growth
from fedquilt.engines.sequential import SequentialEngine, client_in_errors
from fedquilt.training.client import Interrupted, Workspace, run_client
from fedquilt.training.method import Method, State

MEMORY_SHARE = 0.7  # of available memory; the rest is for larger clients and other processes

log = logging.getLogger(__name__)
Item = TypeVar("Item")
Function = Callable[[Workspace, Item], Any]


class ThreadedEngine(SequentialEngine):
    """Same results as the sequential engine, faster: one core per client, not all for one step.

    Dropout and similar layers draw from torch's global generator, which threads share. A client
    that may have drawn from it is run again, alone, and so are all clients after it.
    """

    _pool: ClientPool | None = None
    _drawing_method: Method | None = None  # the method seen to draw from the global generator

    def _run_clients(
        self, method: Method, payload: State, round_index: int, cohort: Sequence[str]
    ) -> Iterator[tuple[str, Update, State]]:
        def run(workspace: Workspace, given: tuple[str, State]) -> tuple[Update, State]:
            name, kept = given
            data, received = self._clients[name], addressed(payload, name)
            with client_in_errors(name, method, round_index):
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

        pool, left = self._pool_for(len(cohort)), list(cohort)
        before = torch.default_generator.get_state()
        while left:
            is_alone = method == self._drawing_method
            given = ((name, self._states.get(name)) for name in tuple(left))
            prefetch = 1 if is_alone else None
            try:
                with closing(pool.map_in_order(run, given, prefetch=prefetch)) as results:
                    for update, state in results:
                        if not torch.equal(torch.default_generator.get_state(), before):
                            self._drawing_method = method
                            break
                        yield left.pop(0), update, state
            finally:
                torch.default_generator.set_state(before)  # after the last thread has stopped

    def _pool_for(self, clients: int) -> ClientPool:
        cores = torch.get_num_threads()
        size = min(cores, clients)
        if self._pool is None or self._pool.size != size:
            self._pool = ClientPool(self.workspace, size, threads_each=cores // size)
        return self._pool


class ClientPool:
    """A thread pool for client rounds, one workspace per running client.

    The first client runs alone, to measure how much memory a round takes. The number of concurrent
    clients does not change results; ``threads_each``, torch's threads per client, changes rounding.
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

    def map_in_order(
        self, function: Function[Item], items: Iterable[Item], *, prefetch: int | None = None
    ) -> Generator[Any]:
        """Yield the result for each item, in order; up to ``prefetch`` are submitted ahead.

        The default is twice the number of threads, so that one long client does not stall others.
        """
        submitted: deque[Future[Any]] = deque()
        try:
            for item in items:
                submitted.append(self._threads.submit(self._run, function, item))
                if len(submitted) == (prefetch or 2 * self.size):
                    yield _pop_result(submitted)
            while submitted:
                yield _pop_result(submitted)
        finally:  # also after an error, or if the caller stops early
            self._interrupt.set()
            wait([future for future in submitted if not future.cancel()])
            self._interrupt.clear()

    def _run(self, function: Function[Item], item: Item) -> Any:
        workspace = self._free.get()
        try:
            if self._interrupt.is_set():  # while waiting for a workspace
                raise Interrupted
            if self._is_measured:
                return function(workspace, item)
            with peak_growth() as growth:
                result = function(workspace, item)
            self._is_measured = True
            more = room_for(self.size - 1, growth.bytes)
            if more < self.size - 1:
                log.warning("memory is short: %d of %d clients at a time", 1 + more, self.size)
            for _ in range(more):
                self._free.put(workspace.twin())
            return result
        finally:
            self._free.put(workspace)


def _pop_result(submitted: deque[Future[Any]]) -> Any:
    """Wait for the first result; an interrupt meanwhile leaves its future in the queue."""
    result = submitted[0].result()
    submitted.popleft()
    return result


def room_for(wanted: int, bytes_each: int | None) -> int:
    """Return how many more clients fit into memory, at most ``wanted``."""
    available = available_bytes()
    if not bytes_each or available is None:
        return wanted
    return max(0, min(wanted, int(MEMORY_SHARE * available / bytes_each)))
