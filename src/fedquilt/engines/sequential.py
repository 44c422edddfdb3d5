"""SequentialEngine: runs clients one after another; the reference for the other engines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import ClassVar

import torch

from fedquilt.core.aggregation_rules import PLAIN_RULES, AggregationRules
from fedquilt.core.bounds import OutOfBounds
from fedquilt.core.compact_payload import compacted
from fedquilt.core.norms import EarlierNorms
from fedquilt.core.payload import Update, addressed
from fedquilt.core.processes import ONE_PROCESS, Processes, own_clients
from fedquilt.core.totals import Accumulator, Totals
from fedquilt.core.tree import Weights, as_branch, from_branch
from fedquilt.data.client_data import ClientData
from fedquilt.engines.client_states import (
    ClientStates,
    HalvedStates,
    StatesInMemory,
    personal_weights,
)
from fedquilt.metrics.pseudo_labels import PseudoLabelAudit
from fedquilt.privacy.attacks import Attackers
from fedquilt.privacy.noisy_parts import SURVEY, with_noisy_parts
from fedquilt.privacy.transform import PayloadTransform, apply_survey_transforms, apply_transforms
from fedquilt.training.activity import ActivityTally
from fedquilt.training.agreed_bounds import round_bounds, round_rule
from fedquilt.training.agreed_scales import round_scales, survey_scales
from fedquilt.training.client import Workspace, run_client
from fedquilt.training.client_step import names_of_draws
from fedquilt.training.fixed_buffers import with_fixed
from fedquilt.training.method import Method, State
from fedquilt.training.rounds import expected_update
from fedquilt.training.task import Task

UNSENT = "unsent"  # in a client's state: what its compact updates lacked so far


class SequentialEngine:
    """Memory does not grow with the number of clients: one workspace, one accumulator.

    With ``processes`` set, each process runs its own clients, and all of them get the totals of
    all.
    """

    caches_states: ClassVar[bool] = False  # whether states are stored only by write_states()
    attackers: Attackers | None = None  # clients that lie, if attacks are simulated

    def __init__(
        self,
        task: Task,
        clients: Mapping[str, ClientData],
        *,
        states: ClientStates | None = None,
        audit: PseudoLabelAudit | None = None,
        tally: ActivityTally | None = None,
        device: str = "cpu",
        transforms: Sequence[PayloadTransform] = (),
        rules: AggregationRules = PLAIN_RULES,
    ) -> None:
        self._task = task
        self._rules = rules
        self.norms = EarlierNorms()
        self._transforms = transforms
        self._clients = clients
        self._images = {name: len(data) for name, data in clients.items()}
        self._states: ClientStates = StatesInMemory() if states is None else states
        self._audit = audit
        self._tally = tally
        self.workspace = Workspace.of(task, torch.device(device))
        self.processes: Processes = ONE_PROCESS

    def store_in_bfloat16(self) -> None:
        """Store the large tensors of clients' states in bfloat16 from now on."""
        self._states = HalvedStates(self._states)

    def survey(self, method: Method) -> Totals:
        answers = {}
        for name in self._own(sorted(self._clients)):
            data = self._clients[name]
            answer = self._with_noise(method, data, method.survey(data), SURVEY)
            answers[name] = apply_survey_transforms(self._transforms, method, data, answer)
        expected = next(iter(answers.values()))
        scales = survey_scales(self._rules, expected, list(self._images.values()))
        accumulator = Accumulator(
            expected, len(self._clients), scales=scales, processes=self.processes
        )
        for name, answer in answers.items():
            accumulator.add(name, answer)
        return accumulator.totals()

    def exchange(
        self, method: Method, payload: State, round_index: int, cohort: Sequence[str]
    ) -> Totals:
        payload = with_fixed(payload, self._task)
        expected = expected_update(method, payload, cohort[0], self._task)
        bounds = round_bounds(
            self._rules.bounds,
            method,
            self._task,
            round_index,
            before=self.norms,
            images=self._images.__getitem__,
        )
        scales = round_scales(self._rules, method, self._task, round_index, expected, self._images)
        rule = round_rule(self._rules.robust, lambda name: self._clients[name].known.any(0))
        accumulator = Accumulator(
            expected,
            len(self._clients),
            bounds=bounds,
            scales=scales,
            rule=rule,
            processes=self.processes,
        )
        # A fixed order: rounding of the sums must not depend on who finishes first.
        own = self._own(sorted(cohort))
        rounds = self._run_clients(method, payload, round_index, own) if own else iter(())
        if self.attackers is not None:
            rounds = self.attackers.tampered(rounds)
        for name, update, state in rounds:
            data, kept = self._clients[name], state["method"]
            update = self._with_noise(method, data, update, round_index)
            update = apply_transforms(self._transforms, method, data, kept, update)
            if self._rules.payload.is_lossy:
                update, state = self._compacted(name, update, state, round_index)
            with suppress(OutOfBounds):  # the round goes on without it, and its totals say so
                accumulator.add(name, update)
            self._states.put(name, state)
            if self._audit is not None:
                self._audit.record(name, method.pseudo_labels(kept))
            if self._tally is not None:
                self._tally.record(method.activity(data, kept))
        accumulator.settle()
        return accumulator.totals()

    def _with_noise(
        self, method: Method, data: ClientData, update: Update, round_index: int
    ) -> Update:
        draws = self.workspace.draws
        return with_noisy_parts(method, self._task, data, update, round_index, draws)

    def _compacted(
        self, client: str, update: Update, state: State, round_index: int
    ) -> tuple[Update, State]:
        """Return the update as the server decodes it, and the state with what it lacks."""
        names = names_of_draws(self._task, client, round_index)
        before = self._states.get(client).get(UNSENT, {})
        update, left = compacted(update, before, self._rules.payload, *names)
        return update, ({**state, UNSENT: left} if left else state)

    def _own(self, clients: Iterable[str]) -> list[str]:
        return own_clients(self.processes, clients, self._clients)

    def _run_clients(
        self, method: Method, payload: State, round_index: int, cohort: Sequence[str]
    ) -> Iterator[tuple[str, Update, State]]:
        """Yield each client's name, update and new state, in cohort order."""
        for name in cohort:
            with client_in_errors(name, method, round_index):
                update, state = run_client(
                    method,
                    self._task,
                    self.workspace,
                    self._clients[name],
                    addressed(payload, name),
                    self._states.get(name),
                    round_index,
                )
            yield name, update, state

    def write_states(self) -> None:
        """Write cached client states to the store."""

    def recall_pseudo_labels(self, method: Method) -> None:
        """After a resume, record the pseudo-labels of the stored states in the audit."""
        for name in self._own(sorted(self._clients)):
            state = self._states.get(name)
            if self._audit is not None and state:
                self._audit.record(name, method.pseudo_labels(state.get("method", {})))

    def personal_weights(self, method: Method, payload: State) -> Iterator[tuple[str, Weights]]:
        """Yield each client's own model, for methods without a global one."""
        own = personal_weights(method, payload, self._states, self._own(self._clients))
        if self.processes.count == 1:
            return own
        branches = {as_branch(client): weights for client, weights in own}
        every = {
            from_branch(branch): weights
            for theirs in self.processes.share_trees(branches)
            for branch, weights in theirs.items()
        }
        return iter(sorted(every.items()))


@contextmanager
def client_in_errors(client: str, method: Method, round_index: int) -> Iterator[None]:
    """Add client, method and round to any error as a note."""
    try:
        yield
    except Exception as error:
        error.add_note(f"while client {client!r} ran {type(method).__name__}, round {round_index}")
        raise
