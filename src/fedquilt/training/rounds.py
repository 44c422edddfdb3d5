"""The server's rounds, the same code on every engine, and the Engine protocol."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from fedquilt.core.bounds_report import BoundsReport
from fedquilt.core.errors import UserError
from fedquilt.core.norms import EarlierNorms
from fedquilt.core.payload import Mean, Update, addressed, broadcast_bytes
from fedquilt.core.robust import RobustReport
from fedquilt.core.seeding import generator_for
from fedquilt.core.totals import Totals
from fedquilt.models.network import read_weights
from fedquilt.training.client import LOSS_PART
from fedquilt.training.fixed_buffers import without_fixed
from fedquilt.training.method import Method, State
from fedquilt.training.model_checks import check_new_model
from fedquilt.training.task import Task


class SkippedRound(Exception):
    """Raised by an engine for a round that counts, but leaves the model as it was."""


class Engine(Protocol):
    norms: EarlierNorms  # what the next round's updates are compared with

    def survey(self, method: Method) -> Totals: ...

    def exchange(
        self, method: Method, payload: State, round_index: int, cohort: Sequence[str]
    ) -> Totals: ...


@dataclass(frozen=True)
class Round:
    """The result of a round at the server."""

    index: int
    server: State
    cohort: tuple[str, ...]
    loss: float  # mean training loss over all local steps; NaN for a skipped round
    bytes_down: int
    bytes_up: int
    seconds: float
    bounds: BoundsReport = BoundsReport()
    robust: RobustReport = RobustReport()
    skipped: str | None = None  # why the model is as before


def start_server(method: Method, task: Task, engine: Engine) -> State:
    """Return the server's state before the first round.

    Raise UserError if no client annotates some class.
    """
    survey = engine.survey(method)
    annotators = survey.sum("annotators")
    unannotated = [name for name, count in zip(task.classes, annotators.tolist()) if count == 0]
    if unannotated:
        raise UserError(
            f"no client annotates {', '.join(unannotated)}: nothing can be learnt about "
            f"{'it' if len(unannotated) == 1 else 'them'}; leave the class out or add an annotator"
        )
    return method.init_server(read_weights(task.build_network()), task, survey)


def run_rounds(
    method: Method,
    task: Task,
    engine: Engine,
    server: State,
    *,
    first_round: int = 0,
    cohort_size: int | None = None,
) -> Iterator[Round]:
    """Yield every round from ``first_round`` on; the caller evaluates and saves."""
    for index in range(first_round, task.round_count):
        began = time.perf_counter()
        cohort = draw_cohort(task, cohort_size, index)
        payload = without_fixed(method.broadcast(server), task)
        try:
            totals = engine.exchange(method, payload, index, cohort)
        except SkippedRound as why:
            seconds = time.perf_counter() - began
            yield Round(index, server, (), math.nan, 0, 0, seconds, skipped=str(why))
            continue
        new = method.update(server, totals)
        check_new_model(task, server, new, index, totals.bounds.largest)
        server, engine.norms = new, totals.bounds.norms
        yield Round(
            index=index,
            server=server,
            cohort=totals.cohort,
            loss=math.nan if task.privacy.training else float(totals.mean(LOSS_PART)),
            bytes_down=broadcast_bytes(payload, cohort),
            bytes_up=totals.byte_count,
            seconds=time.perf_counter() - began,
            bounds=totals.bounds,
            robust=totals.robust,
        )


def expected_update(method: Method, payload: State, client: str, task: Task) -> Update:
    """Return the update expected from this client: the method's parts and the training loss."""
    loss = Mean(torch.zeros(()), 0.0, needs_weight=True)
    return {**method.expected_update(addressed(payload, client), task), LOSS_PART: loss}


def draw_cohort(task: Task, size: int | None, round_index: int) -> Sequence[str]:
    """Draw the round's clients without replacement; the order of the population does not matter."""
    names = sorted(task.clients)
    if size is None or size >= len(names):
        return names
    generator = generator_for(task.seed, "cohort", round_index)
    drawn = torch.randperm(len(names), generator=generator)[:size]
    return sorted(names[position] for position in drawn.tolist())
