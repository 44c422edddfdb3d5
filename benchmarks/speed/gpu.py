"""Images per second on one GPU: the CUDA graph engine against the eager loop and against its bound.

    python -m benchmarks.speed.gpu [--methods fedavg-pl fedmlp] [--sizes 28 64 224]

All engines train the same ResNet-18 on the same images, which are in device memory. A measurement
is whole rounds: broadcast, training, aggregation. The first round, which also captures the CUDA
graphs, is reported apart. The eager loop is the sequential engine with one client: it trains
clients one after another, each in the same time. The bound is one client that holds all images
and takes batches of 32 x clients, by CUDA graphs too. Steps alone, without the rest of a round and
without making batches, are measured as well, and so is a hand-written loop of such steps.

Every run adds its rows to ``results/speed/gpu.csv`` under a new number in the column ``run``.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from functools import lru_cache
from statistics import median

import timm
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from benchmarks.harness.result_csv import read_results, write_results
from fedquilt.core.registry import find
from fedquilt.data.augmentation.views import Preprocessing, Views
from fedquilt.data.client_data import ClientData
from fedquilt.engines.cuda_graph.device_memory import on_device
from fedquilt.engines.cuda_graph.engine import CudaGraphEngine
from fedquilt.engines.sequential import SequentialEngine
from fedquilt.methods import METHODS
from fedquilt.models.spec import ModelSpec
from fedquilt.training.method import Method
from fedquilt.training.rounds import start_server
from fedquilt.training.task import Task

BATCH = 32
CLASSES = 10
CLIENTS = {28: 10, 64: 10, 224: 8}
EPOCH = 40  # steps over a client's images
REPLAYS = 40  # of every slot's step
STAGES = ("training", "warm-up", "after warm-up")  # FedMLP has the last two, others the first
TARGETS = {28: (14, 0.40), 64: (13, 0.50), 224: (3.5, 0.90)}  # times eager, share of the bound


@lru_cache(maxsize=1)
def noise(size: int) -> Tensor:
    """Return random images: the cost of a step does not depend on their content."""
    count = CLIENTS[size] * EPOCH * BATCH
    return torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8, device="cuda").cpu()


def clients_of(size: int, count: int) -> dict[str, ClientData]:
    """Return clients that annotate half of each image's labels, the same half for any ``count``.

    With complete labels some methods do less work: FedLSM uses no teacher then.
    """
    images = noise(size)
    total, each = len(images), len(images) // count
    random = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 2, (total, CLASSES), dtype=torch.uint8, generator=random)
    known = torch.arange(CLASSES) % 2 == torch.arange(total)[:, None] // (EPOCH * BATCH) % 2
    labels *= known
    return {
        f"client-{place:02d}": ClientData(
            name=f"client-{place:02d}",
            images=images,
            indices=torch.arange(place * each, (place + 1) * each),
            labels=labels[place * each : (place + 1) * each],
            known=known[place * each : (place + 1) * each],
        )
        for place in range(count)
    }


def task_of(method: Method, clients: dict[str, ClientData], size: int) -> Task:
    return Task(
        classes=tuple(f"class {number}" for number in range(CLASSES)),
        clients=tuple(clients),
        image_shape=(3, size, size),
        model=method.model_spec(ModelSpec(backbone="resnet18")),
        preprocessing=Preprocessing(views=Views(weak="flip"), mean=(0.5,), std=(0.5,)),
        round_count=100,
        seed=0,
    )


def method_of(name: str, steps: int, stage: str, together: int = 1) -> Method:
    """Return a method whose batches are as large as those of ``together`` clients."""
    method: Method = find("method", METHODS, name)()
    training = replace(
        method.training, batch_size=BATCH * together, steps=steps, precision="bfloat16", epochs=1
    )
    own = {
        "warmup_rounds": 0 if stage == "after warm-up" else 1000,
        "mixed_images": getattr(method, "mixed_images", 0) * together,  # FedLSM's, of a batch
    }
    return replace(
        method,
        training=training,
        **{name: value for name, value in own.items() if hasattr(method, name)},
    )


def images_per_second(
    engine: SequentialEngine, method: Method, task: Task, rounds: int, clients: int | None = None
) -> tuple[float, float]:
    """Return the median over whole rounds, and the seconds of the first round, left out of it."""
    server = start_server(method, task, engine)
    cohort = sorted(task.clients)[:clients]
    images = len(cohort) * method.training.batch_size * (method.training.steps or 0)
    seconds = []
    for index in range(rounds + 1):
        torch.cuda.synchronize()
        began = time.perf_counter()
        totals = engine.exchange(method, method.broadcast(server), index, cohort)
        server = method.update(server, totals)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    return images / median(seconds[1:]), seconds[0]


def images_per_second_in_steps(engine: CudaGraphEngine, batch_size: int) -> float | None:
    """Measure replays of every slot's step on one batch; None if steps are not captured."""
    if engine.capture_failure:
        return None
    steps = [(slot, next(iter(slot.captured_steps.values()))) for slot in engine._slots]

    def replay(count: int) -> None:
        for _ in range(count):
            for slot, captured in steps:
                with slot.on_stream():
                    captured.chunk.next.zero_()
                    captured.step.replay()
        torch.cuda.synchronize()

    replay(5)
    began = time.perf_counter()
    replay(REPLAYS)
    return REPLAYS * len(steps) * batch_size / (time.perf_counter() - began)


def images_per_second_by_hand(size: int, steps: int) -> float:
    """Measure eager steps of one network by Adam, on one batch in device memory."""
    channels_last = torch.channels_last
    network = (
        timm.create_model("resnet18", num_classes=CLASSES).cuda().to(memory_format=channels_last)
    )
    adam = torch.optim.Adam(network.parameters(), lr=1e-3)
    images = torch.rand(BATCH, 3, size, size, device="cuda").to(memory_format=channels_last)
    labels = torch.randint(0, 2, (BATCH, CLASSES), device="cuda").float()

    def train(count: int) -> None:
        for _ in range(count):
            with torch.autocast("cuda", torch.bfloat16):
                scores = network(images)
            adam.zero_grad()
            binary_cross_entropy_with_logits(scores.float(), labels).backward()
            adam.step()
        torch.cuda.synchronize()

    train(10)
    began = time.perf_counter()
    train(steps)
    return steps * BATCH / (time.perf_counter() - began)


def measure(name: str, size: int, stage: str, rounds: int, steps: int) -> dict[str, object]:
    count = CLIENTS[size]
    device = torch.device("cuda")
    many = clients_of(size, count)
    method = method_of(name, steps, stage)
    task = task_of(method, many, size)
    engine = CudaGraphEngine(task, many)
    fast, first_round = images_per_second(engine, method, task, rounds)
    fast_steps = images_per_second_in_steps(engine, BATCH)
    reason = engine.capture_failure or ""
    del engine
    there = on_device(many, device)
    loop = SequentialEngine(
        task,
        {
            name: replace(data, images=there[name].images, indices=there[name].indices)
            for name, data in many.items()
        },
        device="cuda",
    )
    eager, _ = images_per_second(loop, method, task, 1, clients=1)
    bare = images_per_second_by_hand(size, steps) if name == "fedavg-pl" else None
    one = clients_of(size, 1)
    wide = method_of(name, steps, stage, together=count)
    alone = task_of(wide, one, size)
    whole = CudaGraphEngine(alone, one)
    bound, _ = images_per_second(whole, wide, alone, rounds)
    bound_steps = images_per_second_in_steps(whole, BATCH * count)
    del whole
    torch.cuda.empty_cache()
    return {
        "method": name,
        "stage": stage,
        "pixels": size,
        "clients": count,
        "steps_a_round": steps,
        "first_round_s": round(first_round, 1),
        "eager_images_per_s": round(eager),
        "cuda_graph_images_per_s": round(fast),
        "bound_images_per_s": round(bound),
        "bare_images_per_s": bare and round(bare),
        "against_eager": round(fast / eager, 2),
        "against_bare": bare and round(fast / bare, 2),
        "of_the_bound": round(fast / bound, 3),
        "steps_images_per_s": fast_steps and round(fast_steps),
        "bound_steps_images_per_s": bound_steps and round(bound_steps),
        "of_the_bound_in_steps": fast_steps and bound_steps and round(fast_steps / bound_steps, 3),
        "target_against_eager": TARGETS[size][0],
        "target_of_the_bound": TARGETS[size][1],
        "capture_failure": reason,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", nargs="+", default=["fedavg-pl", "fedmlp", "fedlsm"])
    parser.add_argument("--sizes", nargs="+", type=int, default=[28, 64, 224])
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=STAGES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3 * EPOCH, help="per client and round")
    parser.add_argument("--out", default="gpu", help="name of the CSV file")
    options = parser.parse_args()
    result = f"speed/{options.out}"
    earlier = read_results(result)
    run = 1 + max((int(row["run"]) for row in earlier), default=0)
    rows = []
    for size in options.sizes:
        for name in options.methods:
            own = STAGES[1:] if name == "fedmlp" else STAGES[:1]
            for stage in [stage for stage in own if stage in options.stages]:
                found = measure(name, size, stage, options.rounds, options.steps)
                rows.append({"run": run} | found)
                print(rows[-1], flush=True)
                # After every row: a borrowed machine may be taken away before the last one.
                write_results(result, rows, device="cuda", earlier=earlier)


if __name__ == "__main__":
    main()
