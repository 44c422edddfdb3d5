"""CPU engines of fedquilt beside Flower's simulation and pfl, on one federation and in one run.

    make bench-simulators

All train the same network from the same weights on the same batches, one local epoch of SGD a
round, and average weighted by images. Each computes on one thread; fedquilt is also measured with
two clients at a time and Flower with two actors. Tools that are not installed are named and left
out. The tools take turns, in alternating order. The first round of a turn is not measured: its
extra time over a median round counts as set-up, without imports in this process (pfl also
evaluates in that round). Ratios are medians over turns of the medians of a turn.

Wall-clock time on a shared machine depends on its other load, so the CPU seconds of all processes
of a tool are reported too. These leave out waiting, of which Flower does some: it polls for
messages ten times a second.

After one round, tools may differ by rounding only, otherwise this stops: a different result means
different work. Rounding errors grow with rounds, so the last round's gap is only reported.
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

from benchmarks.harness.result_csv import write_results
from benchmarks.speed.simulators.simulated_federation import (
    BATCH,
    LEARNING_RATE,
    SETTINGS,
    Federation,
    RoundLog,
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
OURS_THREADED = "fedquilt, 2 clients at a time"
OTHERS = {  # name: the packages it needs, its module here, options
    "Flower, 1 actor": (("flwr", "ray", "psutil"), "flower_simulation", {"actors": 1}),
    "Flower, 2 actors": (("flwr", "ray", "psutil"), "flower_simulation", {"actors": 2}),
    "pfl": (("pfl",), "pfl_simulation", {}),
}
QUIET = {  # no telemetry, no warnings about GPUs, and pfl on the CPU
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "PFL_PYTORCH_DEVICE": "cpu",
}
HOW_TO_INSTALL = "pip install -r benchmarks/speed/simulators/requirements.txt"
ROUNDING = 1e-5  # the largest gap between weights after one round

Simulator = Callable[[str, int], RoundLog]


def run_fedquilt(setting: str, rounds: int, at_a_time: int = 1) -> RoundLog:
    log = RoundLog()
    federation = make_federation(setting, rounds)
    training = LocalTraining(optimizer="sgd", lr=LEARNING_RATE, batch_size=BATCH)
    method = FedAvgPL(positive_weight="none", training=training)
    kind = SequentialEngine if at_a_time == 1 else ThreadedEngine
    torch.set_num_threads(at_a_time)  # one per client
    engine = kind(federation.task, federation.clients)
    server = start_server(method, federation.task, engine)
    for round_ in run_rounds(method, federation.task, engine, server):
        log.end_round(round_.server["weights"])
    torch.set_num_threads(1)
    return log


def installed_tools() -> dict[str, tuple[Simulator, str]]:
    """Return every installed tool with its version; name the others."""
    ours = f"{OURS} {version(OURS)}"
    tools: dict[str, tuple[Simulator, str]] = {
        OURS: (run_fedquilt, ours),
        OURS_THREADED: (partial(run_fedquilt, at_a_time=2), ours),
    }
    for name, (packages, module, options) in OTHERS.items():
        missing = [package for package in packages if find_spec(package) is None]
        if missing:
            print(f"{name} is left out, not installed: {', '.join(missing)}; {HOW_TO_INSTALL}")
            continue
        run = importlib.import_module(f"benchmarks.speed.simulators.{module}").run
        shown = ", ".join(f"{package} {version(package)}" for package in packages[:2])
        tools[name] = (partial(run, **options), shown)
    return tools


def gap(first: Weights, second: Weights, names: Sequence[str]) -> float:
    return max(float((first[name] - second[name]).abs().max()) for name in names)


def check_same_work(name: str, log: RoundLog, ours: RoundLog, trained: Sequence[str]) -> None:
    found = gap(log.weights[0], ours.weights[0], trained)
    if found > ROUNDING:
        raise SystemExit(
            f"{name} is {found:.1e} from fedquilt after one round, expected at most {ROUNDING}: "
            "it did different work, so its seconds cannot be compared"
        )


def median_round(moments: Sequence[float]) -> float:
    """Return the median duration of all rounds but the first."""
    return statistics.median(after - before for before, after in pairwise(moments[1:]))


def row(
    name: str, turns: Sequence[Mapping[str, RoundLog]], federation: Federation
) -> dict[str, object]:
    mine, ours = [turn[name] for turn in turns], [turn[OURS] for turn in turns]
    wall = [median_round(log.wall) for log in mine]
    cpu = [median_round(log.cpu) for log in mine]
    trained = federation.task.layout.body + federation.task.layout.head
    first, last = (gap(mine[0].weights[at], ours[0].weights[at], trained) for at in (0, -1))
    moved = gap(ours[0].weights[-1], read_weights(federation.task.build_network()), trained)
    middle = statistics.median
    setup = [log.wall[1] - log.wall[0] - round_ for log, round_ in zip(mine, wall)]
    return {
        "seconds_per_round": round(middle(wall), 3),
        "ratio": round(middle(a / median_round(b.wall) for a, b in zip(wall, ours)), 3),
        "processor_seconds_per_round": round(middle(cpu), 3),
        "processor_ratio": round(middle(a / median_round(b.cpu) for a, b in zip(cpu, ours)), 3),
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
    turns: list[dict[str, RoundLog]] = []
    for number in range(turn_count):
        order = list(tools)[:: 1 if number % 2 == 0 else -1]
        turn = {name: tools[name][0](setting, rounds + 1) for name in order}
        for name, log in turn.items():
            check_same_work(name, log, turn[OURS], trained)
        turns.append(turn)
    load = round(os.getloadavg()[0], 1)
    rows = []
    for name, (_, versions) in tools.items():
        found = row(name, turns, federation)
        print(
            f"{setting}: {name}: {found['seconds_per_round']} s a round, {found['ratio']} times "
            f"fedquilt ({found['processor_ratio']} in CPU seconds), "
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
    tools = installed_tools()
    rows = [
        line
        for setting in SETTINGS
        for line in measure(setting, tools, chosen.rounds, chosen.turns)
    ]
    write_results("speed/simulators", rows)


if __name__ == "__main__":
    main()
