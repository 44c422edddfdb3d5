"""RoundRecorder: evaluates, records and checkpoints rounds, of a simulation and of a study."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias

from fedquilt.core.norms import EarlierNorms
from fedquilt.core.processes import ONE_PROCESS, Processes, is_first
from fedquilt.core.tree import Weights
from fedquilt.recipes.recipe import Recipe
from fedquilt.runs.alarm import Alarm
from fedquilt.runs.checkpoint import Checkpoints
from fedquilt.runs.run_folder import RunFolder
from fedquilt.runs.served_models import Choices, choices_after, choices_of, is_over
from fedquilt.runs.stopped_run import keep_network
from fedquilt.training.method import State
from fedquilt.training.rounds import Engine, Round, run_rounds
from fedquilt.training.task import Task

Record: TypeAlias = dict[str, Any]  # one line of the run's history
SERVER = "server's state"  # its name among the best models; no client is called so


@dataclass(frozen=True)
class RoundMetrics:
    """What the history keeps of an evaluation; an undefined metric is None."""

    averages: dict[str, float | None]
    per_class_auc: dict[str, float | None]


@dataclass(frozen=True)
class RoundValidation:
    """What the history keeps of a validated round, and the models that were validated."""

    facts: Mapping[str, Any]  # see validation_result
    models: Mapping[str, Weights]  # the global one, or each client's
    server: State | None = None  # kept with a global model, for broadcasting it again


class CachedStates(Protocol):
    """Client states of an engine that may hold them back until they are written."""

    caches_states: ClassVar[bool]

    def write_states(self) -> None: ...


class RoundRecorder:
    """Runs the remaining rounds and leaves each in the run's folder.

    ``validate`` and ``evaluate`` get the server's state, ``validate`` also the number of rounds
    done; a round that can be validated is not evaluated on test images. ``further_facts`` are added
    to a round's record. Of several ``processes`` the first one writes.
    """

    def __init__(
        self,
        recipe: Recipe,
        task: Task,
        folder: RunFolder,
        *,
        evaluate: Callable[[State], RoundMetrics | None],
        further_facts: Callable[[], Record],
        checkpoint_every: int,
        validate: Callable[[State, int], RoundValidation | None] = lambda server, rounds: None,
        processes: Processes = ONE_PROCESS,
    ) -> None:
        self.checkpoints = Checkpoints(folder.checkpoints, processes)
        self._processes = processes
        self.choices: Choices = {}  # of each model, after the last recorded round
        self._recipe, self._task = recipe, task
        self._folder, self._history = folder, folder.history
        self._evaluate, self._further_facts = evaluate, further_facts
        self._checkpoint_every, self._validate = checkpoint_every, validate

    def rounds(
        self, engine: Engine, server: State, first_round: int, states: CachedStates | None = None
    ) -> Iterator[tuple[State, Record]]:
        """Yield the server's state and the record of every round from ``first_round`` on."""
        before = [self._as_planned(each) for each in self._history.read()[:first_round]]
        self._processes.share(None)  # all have read it
        self._history.replace(before)
        engine.norms = EarlierNorms.from_facts(before[-1] if before else {})
        self.choices = choices_of(before, self._recipe)
        if is_over(self.choices, self._recipe):
            return
        alarm = Alarm(self._recipe.robust.alarm, before)
        if is_first(self._processes):
            keep_network(self._folder, self._task)
        for round_ in run_rounds(
            self._recipe.method,
            self._task,
            engine,
            server,
            first_round=first_round,
            cohort_size=self._recipe.cohort_size,
        ):
            record = self._record(round_)
            alarm.check(record)
            self._history.append(record)
            # The record comes first: a checkpoint without it would leave a gap in the history.
            self._checkpoint(round_, states)
            yield round_.server, record
            if is_over(self.choices, self._recipe):
                return

    def _is_due(self, round_: Round, every: int) -> bool:
        done = round_.index + 1
        return done % every == 0 or done == self._task.round_count

    def _as_planned(self, record: Record) -> Record:
        """The record as if the run had been planned for its present length.

        A shorter run evaluated its last round although it was not due.
        """
        number = record["round"]
        if number == self._task.round_count or number % self._recipe.evaluation.every == 0:
            return record
        extra = ("validation", "per_class_auc")
        return {key: value for key, value in record.items() if key not in extra} | {"metrics": None}

    def _record(self, round_: Round) -> Record:
        record: Record = {
            "round": round_.index + 1,
            "loss": None if math.isnan(round_.loss) else round_.loss,  # skipped, or not sent
            "cohort": list(round_.cohort),
            "bytes_down": round_.bytes_down,
            "bytes_up": round_.bytes_up,
            "seconds": round_.seconds,
            "metrics": None,
            **round_.bounds.facts(),
            **round_.robust.facts(),
            **({} if round_.skipped is None else {"skipped": round_.skipped}),
        }
        if self._is_due(round_, self._recipe.evaluation.every):
            record |= self._judged(round_)
        return record | self._further_facts()

    def _judged(self, round_: Round) -> Record:
        """Validate the round or, without a validation part, evaluate it."""
        validation = self._validate(round_.server, round_.index + 1)
        if validation is None:
            metrics = self._evaluate(round_.server)
            if metrics is None:
                return {}
            return {"metrics": metrics.averages, "per_class_auc": metrics.per_class_auc}
        number = round_.index + 1
        record: Record = {"round": number, "validation": validation.facts}
        self.choices = choices_after(self.choices, record, self._recipe)
        if number % self._recipe.evaluation.every == 0:  # a longer run compares it too
            for name, weights in validation.models.items():
                if name in self.choices and self.choices[name].best == number:
                    self.checkpoints.keep_best(name, number, weights)
                    if validation.server is not None:
                        self.checkpoints.keep_best(SERVER, number, validation.server)
        return {"validation": validation.facts}

    def _checkpoint(self, round_: Round, states: CachedStates | None) -> None:
        is_saved = self._is_due(round_, self._checkpoint_every) or is_over(
            self.choices, self._recipe
        )
        if is_saved or states is None or not states.caches_states:
            if states is not None:
                states.write_states()
            self.checkpoints.advance(round_.index + 1, round_.server)
        if is_saved:
            self._history.make_durable()
            self.checkpoints.save()


def bound_notices(record: Record) -> list[str]:
    """Return a sentence if a round was skipped, and for every update refused or clipped in it."""
    place = f"round {record['round']}"
    refused = record.get("refused", {}).values()
    clipped = record.get("clipped", {}).items()
    skipped = record.get("skipped")
    return [
        *([] if skipped is None else [f"{place} was skipped, the model is as before: {skipped}"]),
        *(f"{place} goes without an update: {reason}" for reason in refused),
        *(f"{place}: {client} was clipped in {', '.join(parts)}" for client, parts in clipped),
    ]
