"""One run in one process and in two: seconds of a round, and whether the models are equal.

    python -m benchmarks.speed.processes
    python -m benchmarks.speed.processes --device cuda --methods fedavg-pl --pairs 1

Each process computes on one thread. Runs alternate, because other work on the machine slows both;
the result is the median ratio of the pairs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.harness.result_csv import Row, read_results, write_results
from fedquilt.runs.demo import BASE

RESULT = "speed/processes"
METHODS = ("fedavg-pl", "scaffold", "fedmlp")
SUMMATIONS = ("ring", "plain")
CLIENTS = 20


def run_once(
    method: str, processes: int, summation: str, rounds: int, folder: Path, device: str
) -> float:
    """Run to the end and return the median seconds of a round."""
    settings = [
        f"method.name={method}",
        f"rounds={rounds}",
        f"partition.clients={CLIENTS}",
        "data.train=2000",
        "annotation.one_to_one=false",
        f"evaluation.every={rounds}",
        f"checkpoint_every={rounds}",
        f"summation={summation}",
    ]
    if method == "fedmlp":
        settings.append("method.warmup_rounds=2")
    recipe = BASE if method == "fedmlp" else BASE.with_name("digits-fedavg.toml")
    command = [sys.executable, "-m", "fedquilt", "run", str(recipe), "--out", str(folder)]
    command += ["--processes", str(processes), "--device", device]
    command += ["--engine", "sequential"] if device == "cpu" else []
    command += [part for setting in settings for part in ("--set", setting)]
    environment = os.environ | {"OMP_NUM_THREADS": str(processes)}  # shared among them: one each
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    lines = (folder / "history.jsonl").read_text().splitlines()
    return statistics.median([float(json.loads(line)["seconds"]) for line in lines[1:]])


def digest(folder: Path) -> str:
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def measure(method: str, summation: str, rounds: int, pairs: int, device: str) -> Row:
    one, two, equal = [], [], []
    for _ in range(pairs):
        with tempfile.TemporaryDirectory() as name:
            first, second = Path(name) / "one", Path(name) / "two"
            one.append(run_once(method, 1, summation, rounds, first, device))
            two.append(run_once(method, 2, summation, rounds, second, device))
            equal.append(digest(first) == digest(second))
    ratios = [a / b for a, b in zip(one, two)]
    return {
        "method": method,
        "summation": summation,
        "device": device,
        "clients": CLIENTS,
        "rounds": rounds,
        "pairs": pairs,
        "round_s_one_process": round(statistics.median(one), 3),
        "round_s_two_processes": round(statistics.median(two), 3),
        "times_faster": round(statistics.median(ratios), 2),
        "lowest": round(min(ratios), 2),
        "highest": round(max(ratios), 2),
        "equal_models": f"{sum(equal)} of {pairs}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--summations", nargs="+", default=SUMMATIONS)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    earlier, rows = read_results(RESULT), []
    for method in options.methods:
        for summation in options.summations:
            given = options.rounds, options.pairs, options.device
            rows.append(measure(method, summation, *given))
            print(rows[-1], flush=True)
            write_results(RESULT, rows, options.device, earlier=earlier)


if __name__ == "__main__":
    main()
