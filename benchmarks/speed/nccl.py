"""Two ranks on one GPU: whether NCCL adds up their totals there, and what gloo takes for it.

    python -m benchmarks.speed.nccl

Processes of a run use gloo, because totals are on the host: that works with any number of ranks on
a GPU. Each library adds up so many numbers a few times; a refusal is written down as it is.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import time
from datetime import timedelta

import torch
from torch import distributed

from benchmarks.harness.result_csv import Row, write_results

RANKS = 2
REPEATS = 5
PATIENCE = timedelta(seconds=40)
NUMBERS = 11_200_000  # about the weights of a ResNet-18
REFUSALS = ("Duplicate GPU", "ncclInvalidUsage", "Error")  # what to look for in a rank's last words


def add_up(library: str, numbers: int, device: str) -> float:
    """Return the seconds in which this rank's totals and the others' are added up."""
    distributed.init_process_group(library, timeout=PATIENCE)
    totals = torch.ones(numbers, dtype=torch.float64, device=device)
    seconds = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        if library == "gloo":  # as a run does: totals are on the host
            summed = totals.to("cpu", copy=True)
            distributed.all_reduce(summed)
        else:
            summed = totals.clone()
            distributed.all_reduce(summed)
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
        if float(summed[-1]) != RANKS:
            raise RuntimeError(f"{library} added up {RANKS} ones to {float(summed[-1])}")
    distributed.destroy_process_group()
    return statistics.median(seconds)


def try_library(library: str, numbers: int, device: str) -> Row:
    """Start the ranks; return what the first one measured, or why it could not."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = str(listener.getsockname()[1])
    command = [sys.executable, "-m", "benchmarks.speed.nccl", "--library", library]
    command += ["--numbers", str(numbers), "--device", device]
    shared = os.environ | {"WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1"}
    shared |= {"MASTER_PORT": port, "NCCL_DEBUG": "WARN"}
    ranks = [
        subprocess.Popen(
            command,
            env=shared | {"RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(RANKS)
    ]
    said = [rank.communicate(timeout=3 * PATIENCE.total_seconds())[0] for rank in ranks]
    row: Row = {"library": library, "ranks": RANKS, "gpus": gpu_count(device), "numbers": numbers}
    if all(rank.returncode == 0 for rank in ranks):
        return row | {"seconds": round(float(said[0].split()[-1]), 4), "refused": ""}
    lines = [line.strip() for each in said for line in each.splitlines()]
    for words in REFUSALS:
        for line in lines:
            if words in line:
                return row | {"seconds": "", "refused": line[:200]}
    return row | {"seconds": "", "refused": (lines or ["it left no message"])[-1][:200]}


def gpu_count(device: str) -> int:
    return torch.cuda.device_count() if device.startswith("cuda") else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--numbers", type=int, default=NUMBERS)
    parser.add_argument("--library", help="as a rank of it, started by this script")
    options = parser.parse_args()
    if options.library:
        print(add_up(options.library, options.numbers, options.device))
        return
    rows = [try_library(each, options.numbers, options.device) for each in ("nccl", "gloo")]
    for row in rows:
        print(row)
    write_results("speed/nccl", rows, options.device)


if __name__ == "__main__":
    main()
