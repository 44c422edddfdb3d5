"""What the CUDA graph engine's choices are worth, and how much of a round is not steps.

    python -m benchmarks.gpu_choices [--methods fedavg-pl fedlsm] [--sizes 28 64 224]

Whole rounds and steps alone as in ``benchmarks.gpu``, FedMLP in its warm-up, each choice in a
process of its own: some are settings of the driver, which reads them once.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import product

import torch

from benchmarks.gpu import (
    BATCH,
    CLIENTS,
    clients_of,
    images_per_second,
    images_per_second_in_steps,
    method_of,
    task_of,
)
from benchmarks.recording import write_results
from fedquilt.engines.cuda_graph import batch_chunk as chunk_file
from fedquilt.engines.cuda_graph import scheduler as turns_file
from fedquilt.engines.cuda_graph.engine import CudaGraphEngine
from fedquilt.engines.cuda_graph.kernel_search import DeviceShare

STEPS = (40, 160)  # two lengths of a round tell its steps from the rest
ROUNDS = 3


@dataclass(frozen=True)
class Choice:
    waves: int = 1  # in which the clients have their turn
    connections: int | None = None  # hardware queues for streams; the driver's default is 8
    head_start: int = turns_file.HEAD_START  # a client's steps before the next one is opened
    kernels: type[CudaGraphEngine] = CudaGraphEngine  # how they are chosen
    chunk_share: float = chunk_file.MEMORY_SHARE  # of the device's memory, for a client's chunk


class Unsearched(CudaGraphEngine):
    """cuDNN's kernels by its own rules of thumb."""

    def _kernels(self) -> AbstractContextManager[object]:
        return torch.backends.cudnn.flags(enabled=True, benchmark=False, allow_tf32=True)


class SearchedAlone(CudaGraphEngine):
    """cuDNN's kernels by their times with the whole device to themselves."""

    def _share_to_search_on(self, slots: int) -> DeviceShare | None:
        return None


class SearchedWhole(CudaGraphEngine):
    """cuDNN times all its kernels; without a word it stops at ten."""

    def _kernels(self) -> AbstractContextManager[object]:
        return torch.backends.cudnn.flags(
            enabled=True, benchmark=True, benchmark_limit=0, allow_tf32=True
        )


CHOICES = {
    "as it is": Choice(),
    "half of the clients at a time": Choice(waves=2),
    "no head start": Choice(head_start=1),
    "32 hardware queues": Choice(connections=32),
    "kernels searched on the whole device": Choice(kernels=SearchedAlone),
    "all kernels searched": Choice(kernels=SearchedWhole),
    "kernels by rules of thumb": Choice(kernels=Unsearched),
    "shorter chunks": Choice(chunk_share=chunk_file.MEMORY_SHARE / 4),
}


def measure(name: str, trained: str, size: int) -> dict[str, object]:
    choice = CHOICES[name]
    if choice.connections is not None:
        os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = str(choice.connections)
    turns_file.HEAD_START = choice.head_start
    chunk_file.MEMORY_SHARE = choice.chunk_share
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
        write_results("gpu_choices", rows, device="cuda")  # as in benchmarks.gpu


if __name__ == "__main__":
    main()
