"""Every method trained in several real processes at once; each leaves its states in a folder."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from support.engine_agreement import comparable_method
from support.tiny_federation import make_federation
from torch.distributed import FileStore  # type: ignore[attr-defined]

from fedquilt.core.aggregation_rules import AggregationRules
from fedquilt.core.fixed_point import Summation
from fedquilt.core.processes import ONE_PROCESS, Processes
from fedquilt.engines.client_states import StatesInMemory
from fedquilt.engines.process_group import ProcessGroup
from fedquilt.engines.sequential import SequentialEngine
from fedquilt.runs.object_store import packed, unpacked
from fedquilt.training.rounds import run_rounds, start_server

FOUR_SITES = ((0,), (1,), (2,), (0, 1))
SECONDS = 300  # for all methods


@dataclass(frozen=True)
class Trained:
    """What one process knows at the end: the server's state, its clients' and each round."""

    server: Any
    clients: Any
    rounds: list[Any]


def train(name: str, summation: Summation, processes: Processes = ONE_PROCESS) -> Trained:
    method = comparable_method(name)
    federation = make_federation(rounds=2, annotated=FOUR_SITES).fitted(method)
    states = StatesInMemory()
    engine = SequentialEngine(
        federation.task,
        federation.clients,
        states=states,
        rules=AggregationRules(summation=summation),
    )
    engine.processes = processes
    server = start_server(method, federation.task, engine)
    rounds = [*run_rounds(method, federation.task, engine, server, cohort_size=3)]
    kept = {client: states.get(client) for client in federation.clients}
    facts = [[list(each.cohort), each.bytes_up, dict(each.bounds.refused)] for each in rounds]
    return Trained(rounds[-1].server, {c: state for c, state in kept.items() if state}, facts)


def train_side_by_side(
    folder: Path, count: int, jobs: Sequence[tuple[str, Summation]]
) -> dict[tuple[str, str, int], Trained]:
    """Return what each of ``count`` processes ends with, by method, summation and its number."""
    context = multiprocessing.get_context("spawn")
    players = [context.Process(target=_play, args=(folder, k, count, jobs)) for k in range(count)]
    for player in players:
        player.start()
    for player in players:
        player.join(SECONDS)
        assert player.exitcode == 0
    return {
        (name, summation, number): _read(folder / f"{name}-{summation}-{number}")
        for name, summation in jobs
        for number in range(count)
    }


def _play(folder: Path, number: int, count: int, jobs: Sequence[tuple[str, Summation]]) -> None:
    torch.set_num_threads(1)
    group = ProcessGroup(FileStore(str(folder / "store"), count), number, count)
    for name, summation in jobs:
        found = train(name, summation, group)
        place = folder / f"{name}-{summation}-{number}"
        place.mkdir()
        (place / "server").write_bytes(packed(found.server))
        (place / "clients").write_bytes(packed(found.clients))
        (place / "rounds").write_text(json.dumps(found.rounds))


def _read(place: Path) -> Trained:
    server, clients = (unpacked((place / f).read_bytes(), f) for f in ("server", "clients"))
    return Trained(server, clients, json.loads((place / "rounds").read_text()))
