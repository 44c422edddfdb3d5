"""Hundreds of clients on one GPU: more than slots, unequal in size, states beyond device memory.

    python -m benchmarks.speed.many_clients [--clients 200] [--images 40000] [--pixels 64]

Every case trains the same network on the same images, one epoch a round. Cases differ in the number
of clients that hold the images, in the size of the cohort, and in where client states are kept. The
reference is ten equal clients: the loss of speed against it is the cost of reusing slots. The first
rounds, in which CUDA graphs are captured, are reported apart. Rows are added to earlier ones.
"""

from __future__ import annotations

import argparse
import gc
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal

import torch
from torch import Tensor

from benchmarks.harness.result_csv import Row, read_results, write_results
from benchmarks.speed.gpu import BATCH, CLASSES, task_of
from fedquilt.core.registry import find
from fedquilt.data.client_data import ClientData
from fedquilt.engines.cuda_graph.engine import CudaGraphEngine
from fedquilt.methods import METHODS
from fedquilt.training.method import Method
from fedquilt.training.rounds import run_rounds, start_server

RESULT = "speed/many_clients"
FEW = 10
FIRST = 5  # rounds in which nearly all CUDA graphs are captured
SPREAD = 1.0  # standard deviation of the logarithm of clients' sizes


@dataclass(frozen=True)
class Case:
    method: str = "fedavg-pl"
    is_few: bool = False  # ten clients instead of all
    is_even: bool = False  # all of the same size
    cohort_share: float = 1.0  # of the clients
    device_state_bytes: int | None = None  # by default a quarter of the device's memory


CASES = {
    "ten equal clients": Case(is_few=True, is_even=True),
    "many equal clients": Case(is_even=True),
    "many unequal clients": Case(),
    "a quarter of them a round": Case(cohort_share=0.25),
    "states on the device": Case("scaffold"),
    "states in pinned memory": Case("scaffold", device_state_bytes=0),
}


def sizes_of(count: int, images: int, *, is_even: bool) -> list[int]:
    """Return log-normal sizes, or equal ones; each at least 2, in sum at most ``images``."""
    random = torch.Generator().manual_seed(0)
    drawn = torch.zeros(count) if is_even else SPREAD * torch.randn(count, generator=random)
    shares = drawn.exp() / drawn.exp().sum()
    return [max(2, int(size)) for size in (shares * (images - 2 * count)).tolist()]


def clients_of(sizes: list[int], images: Tensor) -> dict[str, ClientData]:
    """Return clients that annotate every second class each."""
    random = torch.Generator().manual_seed(1)
    labels = torch.randint(0, 2, (len(images), CLASSES), dtype=torch.uint8, generator=random)
    clients, start = {}, 0
    for place, size in enumerate(sizes):
        rows = torch.arange(start, start + size)
        known = (torch.arange(CLASSES) % 2 == place % 2).expand(size, CLASSES)
        name = f"client-{place:03d}"
        clients[name] = ClientData(name, images, rows, labels[rows] * known, known)
        start += size
    return clients


def method_of(name: str, precision: Literal["float32", "bfloat16"]) -> Method:
    method: Method = find("method", METHODS, name)()
    training = replace(method.training, batch_size=BATCH, epochs=1, steps=None, precision=precision)
    return replace(method, training=training)


def measure(name: str, count: int, images: Tensor, rounds: int, device: str, backbone: str) -> Row:
    case = CASES[name]
    is_cuda = device == "cuda"
    clients = clients_of(
        sizes_of(FEW if case.is_few else count, len(images), is_even=case.is_even), images
    )
    method = method_of(case.method, "bfloat16" if is_cuda else "float32")
    task = task_of(method, clients, images.shape[-1])
    task = replace(task, round_count=FIRST + rounds, model=replace(task.model, backbone=backbone))
    if is_cuda:
        torch.cuda.reset_peak_memory_stats()
    engine = CudaGraphEngine(
        task, clients, device=device, device_state_bytes=case.device_state_bytes
    )
    cohort = max(1, round(case.cohort_share * len(clients)))
    rounds_done = list(
        run_rounds(method, task, engine, start_server(method, task, engine), cohort_size=cohort)
    )
    speeds = [
        sum(len(clients[client]) for client in each.cohort) / each.seconds
        for each in rounds_done[FIRST:]
    ]
    sizes = sorted(len(data) for data in clients.values())
    return {
        "case": name,
        "method": case.method,
        "pixels": images.shape[-1],
        "clients": len(clients),
        "a_round": cohort,
        "smallest": sizes[0],
        "largest": sizes[-1],
        "images": sum(sizes),
        "first_rounds_s": " ".join(f"{each.seconds:.1f}" for each in rounds_done[:FIRST]),
        "images_per_s": round(median(speeds)),
        "last_loss": round(rounds_done[-1].loss, 4),
        "reserved_gib": round(torch.cuda.max_memory_reserved() / 2**30, 1) if is_cuda else None,
        "capture_failure": engine.capture_failure or "",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--images", type=int, default=40_000)
    parser.add_argument("--pixels", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5, help="measured, after the first ones")
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--backbone", default="resnet18")
    parser.add_argument("--device", default="cuda", help="cpu to try the script")
    options = parser.parse_args()
    shape = (options.images, 3, options.pixels, options.pixels)
    images = torch.randint(0, 256, shape, dtype=torch.uint8)  # content does not matter
    earlier = read_results(RESULT)
    rows: list[Row] = []
    for name in options.cases:
        rows.append(
            measure(name, options.clients, images, options.rounds, options.device, options.backbone)
        )
        print(rows[-1], flush=True)
        write_results(RESULT, rows, device=options.device, earlier=earlier)  # see gpu.py
        gc.collect()
        if options.device == "cuda":
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
