"""One run in one process and in two: seconds of a round, and whether the models are equal.

    python -m benchmarks.speed.processes

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

from benchmarks.harness.result_csv import Row, write_results
from fedquilt.runs.demo import BASE

METHODS = ("fedavg-pl", "scaffold", "fedmlp")
CLIENTS = 20


def run_once(method: str, processes: int, summation: str, rounds: int, folder: Path) -> float:
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
    command += ["--processes", str(processes), "--engine", "sequential"]
    command += [part for setting in settings for part in ("--set", setting)]
    environment = os.environ | {"OMP_NUM_THREADS": str(processes)}  # shared among them: one each
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    lines = (folder / "history.jsonl").read_text().splitlines()
    return statistics.median([float(json.loads(line)["seconds"]) for line in lines[1:]])


def digest(folder: Path) -> str:
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def measure(method: str, summation: str, rounds: int, pairs: int) -> Row:
    one, two, equal = [], [], []
    for _ in range(pairs):
        with tempfile.TemporaryDirectory() as name:
            first, second = Path(name) / "one", Path(name) / "two"
            one.append(run_once(method, 1, summation, rounds, first))
            two.append(run_once(method, 2, summation, rounds, second))
            equal.append(digest(first) == digest(second))
    ratios = [a / b for a, b in zip(one, two)]
    return {
        "method": method,
        "summation": summation,
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
    options = parser.parse_args()
    rows = []
    for method in METHODS:
        for summation in ("ring", "plain"):
            rows.append(measure(method, summation, options.rounds, options.pairs))
            print(rows[-1], flush=True)
            write_results("speed/processes", rows)


if __name__ == "__main__":
    main()
