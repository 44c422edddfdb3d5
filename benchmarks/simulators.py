"""The sequential engine beside Flower's simulation and pfl, on one federation and in one run.

    make bench-simulators

All train the same network from the same weights on the same batches, one local epoch of SGD a
round, and average by images; each computes on one thread, fedquilt also with two clients at a time
and Flower with two actors. A tool that is not installed is named and left out. The tools take
turns, forth and back. A turn's first round is not measured: what it takes beyond a usual round
counts as set-up, without imports in this process (pfl also evaluates in it). Ratios are medians
over turns of the turn's medians.

On a shared machine seconds on the wall say more about the neighbours; processor seconds of all
processes of a tool stand beside them. They leave out waiting, of which Flower does some: it looks
for messages ten times a second.

After one round the tools may differ by rounding only, or this stops: another result would mean
other work. Rounding grows from round to round, so the last round's gap is only reported.
"""

from __future__ import annotations

import argparse
import importlib
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from itertools import pairwise

import torch

from benchmarks.recording import write_results
from benchmarks.simulated_federation import (
    BATCH,
    LEARNING_RATE,
    SETTINGS,
    Course,
    Federation,
    make_federation,
)
from fedquilt.core.tree import Weights
from fedquilt.engines.sequential import SequentialEngine
from fedquilt.engines.threaded import ThreadedEngine
from fedquilt.methods.fedavg_pl import FedAvgPL
from fedquilt.models.network import read_weights
from fedquilt.training.local_training import LocalTraining
from fedquilt.training.rounds import run_rounds, start_server

OURS = "fedquilt"
OURS_BESIDE = "fedquilt, 2 clients at a time"
OTHERS = {  # name: the packages it needs, its module here, options
    "Flower, 1 actor": (("flwr", "ray", "psutil"), "flower_simulation", {"actors": 1}),
    "Flower, 2 actors": (("flwr", "ray", "psutil"), "flower_simulation", {"actors": 2}),
    "pfl": (("pfl",), "pfl_simulation", {}),
}
QUIET = {  # nobody calls home or warns of GPUs, and pfl stays on the processor
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "PFL_PYTORCH_DEVICE": "cpu",
}
HOW_TO_INSTALL = "pip install -r benchmarks/requirements-simulators.txt"
ROUNDING = 1e-5  # the largest gap between weights after one round

Simulator = Callable[[str, int], Course]


def by_fedquilt(setting: str, rounds: int, at_a_time: int = 1) -> Course:
    course = Course()
    federation = make_federation(setting, rounds)
    training = LocalTraining(optimizer="sgd", lr=LEARNING_RATE, batch_size=BATCH)
    method = FedAvgPL(positive_weight="none", training=training)
    kind = SequentialEngine if at_a_time == 1 else ThreadedEngine
    torch.set_num_threads(at_a_time)  # each client has one
    engine = kind(federation.task, federation.clients)
    server = start_server(method, federation.task, engine)
    for round_ in run_rounds(method, federation.task, engine, server):
        course.end_round(round_.server["weights"])
    torch.set_num_threads(1)
    return course


def installed() -> dict[str, tuple[Simulator, str]]:
    """Every tool that is here, with its version; the others are named."""
    ours = f"{OURS} {version(OURS)}"
    tools: dict[str, tuple[Simulator, str]] = {
        OURS: (by_fedquilt, ours),
        OURS_BESIDE: (partial(by_fedquilt, at_a_time=2), ours),
    }
    for name, (packages, module, options) in OTHERS.items():
        missing = [package for package in packages if find_spec(package) is None]
        if missing:
            print(f"{name} is left out, not installed: {', '.join(missing)}; {HOW_TO_INSTALL}")
            continue
        run = importlib.import_module(f"benchmarks.{module}").run
        shown = ", ".join(f"{package} {version(package)}" for package in packages[:2])
        tools[name] = (partial(run, **options), shown)
    return tools


def gap(first: Weights, second: Weights, names: Sequence[str]) -> float:
    return max(float((first[name] - second[name]).abs().max()) for name in names)


def check(name: str, course: Course, ours: Course, trained: Sequence[str]) -> None:
    found = gap(course.weights[0], ours.weights[0], trained)
    if found > ROUNDING:
        raise SystemExit(
            f"{name} is {found:.1e} from fedquilt after one round, expected at most {ROUNDING}: "
            "it did other work, so its seconds mean nothing"
        )


def usual(moments: Sequence[float]) -> float:
    """The median of all rounds but the first."""
    return statistics.median(after - before for before, after in pairwise(moments[1:]))


def row(
    name: str, turns: Sequence[Mapping[str, Course]], federation: Federation
) -> dict[str, object]:
    mine, ours = [turn[name] for turn in turns], [turn[OURS] for turn in turns]
    wall = [usual(course.wall) for course in mine]
    busy = [usual(course.busy) for course in mine]
    trained = federation.task.layout.body + federation.task.layout.head
    first, last = (gap(mine[0].weights[at], ours[0].weights[at], trained) for at in (0, -1))
    moved = gap(ours[0].weights[-1], read_weights(federation.task.build_network()), trained)
    middle = statistics.median
    setup = [course.wall[1] - course.wall[0] - round_ for course, round_ in zip(mine, wall)]
    return {
        "seconds_per_round": round(middle(wall), 3),
        "ratio": round(middle(a / usual(b.wall) for a, b in zip(wall, ours)), 3),
        "processor_seconds_per_round": round(middle(busy), 3),
        "processor_ratio": round(middle(a / usual(b.busy) for a, b in zip(busy, ours)), 3),
        "setup_seconds": round(middle(setup), 2),
        "gap_after_first_round": f"{first:.1e}",
        "gap_after_last_round": f"{last:.1e}",
        "largest_move": f"{moved:.1e}",
    }


def measure(
    setting: str, tools: Mapping[str, tuple[Simulator, str]], rounds: int, turn_count: int
) -> list[dict[str, object]]:
    federation = make_federation(setting)
    trained = federation.task.layout.body + federation.task.layout.head
    turns: list[dict[str, Course]] = []
    for number in range(turn_count):
        order = list(tools)[:: 1 if number % 2 == 0 else -1]
        turn = {name: tools[name][0](setting, rounds + 1) for name in order}
        for name, course in turn.items():
            check(name, course, turn[OURS], trained)
        turns.append(turn)
    load = round(os.getloadavg()[0], 1)
    rows = []
    for name, (_, versions) in tools.items():
        found = row(name, turns, federation)
        print(
            f"{setting}: {name}: {found['seconds_per_round']} s a round, {found['ratio']} times "
            f"fedquilt ({found['processor_ratio']} in processor seconds), "
            f"set-up {found['setup_seconds']} s",
            flush=True,
        )
        about = {"setting": setting, "steps_per_round": federation.steps, "tool": name}
        counts = {"rounds": rounds, "turns": turn_count, "load_average": load}
        rows.append(about | found | counts | {"tool_versions": versions})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6, help="measured rounds a turn")
    parser.add_argument("--turns", type=int, default=6)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    os.environ.update(QUIET)
    tools = installed()
    rows = [
        line
        for setting in SETTINGS
        for line in measure(setting, tools, chosen.rounds, chosen.turns)
    ]
    write_results("simulators", rows)


if __name__ == "__main__":
    main()
