"""CPU seconds of a save when so many clients have states and a cohort of 50 changed its own.

python -m benchmarks.scale.states --clients 51414
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import torch

from benchmarks.scale.one_run import COHORT, bytes_in, peak_megabytes
from fedquilt.runs.checkpoint import Checkpoints

NUMBERS = 1000  # in a state
SAVES = 7


def measure(clients: int, folder: Path) -> dict[str, float]:
    folder.mkdir()
    checkpoints = Checkpoints(folder)
    names = [f"user-{number:06d}" for number in range(clients)]
    server = {"weights": {"w": torch.zeros(1000)}}
    began = time.process_time()
    for number, name in enumerate(names):
        checkpoints.put(name, {"method": {"c": torch.full((NUMBERS,), float(number))}})
    checkpoints.advance(1, server)
    checkpoints.save()
    first = time.process_time() - began
    seconds: dict[str, list[float]] = {"put_s": [], "get_s": [], "save_s": []}
    generator = torch.Generator().manual_seed(0)
    for save in range(SAVES):
        cohort = [names[at] for at in torch.randperm(clients, generator=generator)[:COHORT]]
        before_last = set(tree_of(folder))
        began = time.process_time()
        states = [checkpoints.get(name) for name in cohort]
        read = time.process_time()
        for name, state in zip(cohort, states):
            checkpoints.put(name, {"method": {"c": state["method"]["c"] + clients + save}})
        put = time.process_time()
        checkpoints.advance(2 + save, server)
        checkpoints.save()
        ended = time.process_time()
        for name, took in (("get_s", read - began), ("put_s", put - read), ("save_s", ended - put)):
            seconds[name].append(took)
    new = set(tree_of(folder)) - before_last  # by the last save
    began = time.process_time()
    Checkpoints(folder).restore()
    restored = time.process_time() - began
    medians = {name: round(statistics.median(found), 4) for name, found in seconds.items()}
    return medians | {
        "first_save_s": round(first, 2),
        "restore_s": round(restored, 2),
        "memory_mb": peak_megabytes(),
        "folder_mb": round(bytes_in(folder) / 1e6, 1),
        "written_files": len(new),
        "written_mb": round(sum(path.stat().st_size for path in new) / 1e6, 3),
        "files": len(tree_of(folder)),
    }


def tree_of(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(options.clients, Path(folder) / "checkpoints")))


if __name__ == "__main__":
    main()
