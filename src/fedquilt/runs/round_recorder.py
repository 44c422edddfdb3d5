"""RoundRecorder: evaluates, records and checkpoints rounds, of a simulation and of a study."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias

from fedquilt.core.bounds import norms_from
from fedquilt.recipes.recipe import Recipe
from fedquilt.runs.checkpoint import Checkpoints
from fedquilt.runs.run_folder import RunFolder
from fedquilt.training.method import State
from fedquilt.training.rounds import Engine, Round, run_rounds
from fedquilt.training.task import Task

Record: TypeAlias = dict[str, Any]  # one line of the run's history


@dataclass(frozen=True)
class RoundMetrics:
    """What the history keeps of an evaluation; an undefined metric is None."""

    averages: dict[str, float | None]
    per_class_auc: dict[str, float | None]


class CachedStates(Protocol):
    """Client states of an engine that may hold them back until they are written."""

    caches_states: ClassVar[bool]

    def write_states(self) -> None: ...


class RoundRecorder:
    """Runs the remaining rounds and leaves each in the run's folder.

    ``evaluate`` gets the server's state; ``further_facts`` are added to a round's record.
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
    ) -> None:
        self.checkpoints = Checkpoints(folder.checkpoints)
        self._recipe, self._task, self._history = recipe, task, folder.history
        self._evaluate, self._further_facts = evaluate, further_facts
        self._checkpoint_every = checkpoint_every

    def rounds(
        self, engine: Engine, server: State, first_round: int, states: CachedStates | None = None
    ) -> Iterator[tuple[State, Record]]:
        """Yield the server's state and the record of every round from ``first_round`` on."""
        self._history.cut_to(first_round)
        before = self._history.read()
        engine.norms = norms_from(before[-1]) if before else {}
        for round_ in run_rounds(
            self._recipe.method,
            self._task,
            engine,
            server,
            first_round=first_round,
            cohort_size=self._recipe.cohort_size,
        ):
            record = self._record(round_)
            self._history.append(record)
            # The record comes first: a checkpoint without it would leave a gap in the history.
            self._checkpoint(round_, states)
            yield round_.server, record

    def _is_due(self, round_: Round, every: int) -> bool:
        done = round_.index + 1
        return done % every == 0 or done == self._task.round_count

    def _record(self, round_: Round) -> Record:
        record: Record = {
            "round": round_.index + 1,
            "loss": round_.loss,
            "cohort": list(round_.cohort),
            "bytes_down": round_.bytes_down,
            "bytes_up": round_.bytes_up,
            "seconds": round_.seconds,
            "metrics": None,
            **round_.bounds.facts(),
        }
        due = self._is_due(round_, self._recipe.evaluation.every)
        metrics = self._evaluate(round_.server) if due else None
        if metrics is not None:
            record["metrics"] = metrics.averages
            record["per_class_auc"] = metrics.per_class_auc
        return record | self._further_facts()

    def _checkpoint(self, round_: Round, states: CachedStates | None) -> None:
        is_saved = self._is_due(round_, self._checkpoint_every)
        if is_saved or states is None or not states.caches_states:
            if states is not None:
                states.write_states()
            self.checkpoints.advance(round_.index + 1, round_.server)
        if is_saved:
            self._history.make_durable()
            self.checkpoints.save()


def bound_notices(record: Record) -> list[str]:
    """Return a sentence for every update of a round that its bounds refused or clipped."""
    place = f"round {record['round']}"
    refused = record.get("refused", {}).values()
    clipped = record.get("clipped", {}).items()
    return [
        *(f"{place} goes without an update: {reason}" for reason in refused),
        *(f"{place}: {client} was clipped in {', '.join(parts)}" for client, parts in clipped),
    ]
