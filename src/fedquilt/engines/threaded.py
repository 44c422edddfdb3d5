"""ThreadedEngine: several clients at a time on the cores of this machine, each in a thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

import torch

from fedquilt.client import Workspace, run_client
from fedquilt.engines.crew import Crew
from fedquilt.engines.local import LocalEngine, named_in_errors
from fedquilt.method import Method, State
from fedquilt.payload import Update, addressed


class ThreadedEngine(LocalEngine):
    """The local engine's results, sooner: a core per client, not all cores for one client's step.

    Dropout and the like draw from torch's own generator, which threads share. A client that may
    have drawn from it is played again, alone, and so are all that follow.
    """

    _crew: Crew | None = None
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

    def _crew_for(self, clients: int) -> Crew:
        cores = torch.get_num_threads()
        size = min(cores, clients)
        if self._crew is None or self._crew.size != size:
            self._crew = Crew(self.workspace, size, threads_each=cores // size)
        return self._crew
