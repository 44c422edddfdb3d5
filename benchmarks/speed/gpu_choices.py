"""What the CUDA graph engine's design choices are worth, and how much of a round is not steps.

    python -m benchmarks.speed.gpu_choices [--methods fedavg-pl fedlsm] [--sizes 28 64 224]

Whole rounds and steps alone as in ``benchmarks.speed.gpu``, FedMLP in its warm-up. Each choice runs
in a new process: some are settings that the driver reads once.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import product

import torch

from benchmarks.harness.result_csv import write_results
from benchmarks.speed.gpu import (
    BATCH,
    CLIENTS,
    clients_of,
    images_per_second,
    images_per_second_in_steps,
    method_of,
    task_of,
)
from fedquilt.engines.cuda_graph import batch_chunk, scheduler
from fedquilt.engines.cuda_graph.engine import CudaGraphEngine
from fedquilt.engines.cuda_graph.kernel_search import DeviceShare

STEPS = (40, 160)  # of a round: two lengths separate its steps from its fixed cost
ROUNDS = 3


@dataclass(frozen=True)
class Choice:
    waves: int = 1  # groups of clients, trained one after another
    connections: int | None = None  # hardware queues for streams; the driver's default is 8
    lead_steps: int = scheduler.LEAD_STEPS  # a client's steps before the next one begins
    kernels: type[CudaGraphEngine] = CudaGraphEngine  # how cuDNN's kernels are chosen
    chunk_share: float = batch_chunk.MEMORY_SHARE  # of the device's memory, for a client's chunk


class NotTimed(CudaGraphEngine):
    """Uses cuDNN's heuristics to choose kernels."""

    def _cudnn_flags(self) -> AbstractContextManager[object]:
        return torch.backends.cudnn.flags(enabled=True, benchmark=False, allow_tf32=True)


class TimedOnWholeDevice(CudaGraphEngine):
    """Times cuDNN's kernels on the whole device instead of a share of it."""

    def _search_share(self, slots: int) -> DeviceShare | None:
        return None


class AllTimed(CudaGraphEngine):
    """Times all of cuDNN's kernels, not only the first ten."""

    def _cudnn_flags(self) -> AbstractContextManager[object]:
        return torch.backends.cudnn.flags(
            enabled=True, benchmark=True, benchmark_limit=0, allow_tf32=True
        )


CHOICES = {
    "default": Choice(),
    "half of the clients at a time": Choice(waves=2),
    "no lead steps": Choice(lead_steps=1),
    "32 hardware queues": Choice(connections=32),
    "kernels timed on the whole device": Choice(kernels=TimedOnWholeDevice),
    "all kernels timed": Choice(kernels=AllTimed),
    "kernels by heuristics": Choice(kernels=NotTimed),
    "shorter chunks": Choice(chunk_share=batch_chunk.MEMORY_SHARE / 4),
}


def measure(name: str, trained: str, size: int) -> dict[str, object]:
    choice = CHOICES[name]
    if choice.connections is not None:
        os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = str(choice.connections)
    scheduler.LEAD_STEPS = choice.lead_steps
    batch_chunk.MEMORY_SHARE = choice.chunk_share
    many = clients_of(size, CLIENTS[size])
    seconds = {}
    for steps in STEPS:
        method = method_of(trained, steps, "warm-up")
        task = task_of(method, many, size)
        engine = choice.kernels(task, many, slots=CLIENTS[size] // choice.waves)
        speed, _ = images_per_second(engine, method, task, ROUNDS)
        seconds[steps] = CLIENTS[size] * BATCH * steps / speed
    alone = images_per_second_in_steps(engine, BATCH)
    short, long = STEPS
    step = (seconds[long] - seconds[short]) / (long - short)
    return {
        "choice": name,
        "method": trained,
        "pixels": size,
        "clients": CLIENTS[size],
        "step_of_all_ms": round(1000 * step, 2),
        "rest_of_a_round_ms": round(1000 * (seconds[short] - short * step), 1),
        "images_per_s_in_steps": round(CLIENTS[size] * BATCH / step),
        "images_per_s_in_steps_alone": alone and round(alone),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", nargs="+", default=["fedavg-pl"])
    parser.add_argument("--sizes", nargs="+", type=int, default=[28, 64, 224])
    parser.add_argument("--choices", nargs="+", default=list(CHOICES), choices=list(CHOICES))
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    rows: list[dict[str, object]] = []
    for case in product(options.choices, options.methods, options.sizes):
        with context.Pool(1) as process:
            rows.append(process.apply(measure, case))
        print(rows[-1], flush=True)
        write_results("speed/gpu_choices", rows, device="cuda")  # as in benchmarks.speed.gpu


if __name__ == "__main__":
    main()
