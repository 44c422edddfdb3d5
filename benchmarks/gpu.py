"""Images per second on one GPU: the CUDA graph engine against the eager loop and against its bound.

    python -m benchmarks.gpu [--methods fedavg-pl fedmlp] [--sizes 28 64 224] [--stages warm-up]

All engines train the same ResNet-18 on the same images, which lie on the device. A measurement is
whole rounds: broadcast, training, aggregation; the first, which also records, is told apart. The
eager loop is measured on one client: the others would take as long, one after another. The
bound is one client that holds everything and takes batches of 32 x clients, recorded as well.
Steps alone, without the rest of a round and without making batches, are measured beside them,
and so is a bare loop of such steps, written by hand as in a script.
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

from benchmarks.recording import write_results
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
TARGETS = {28: (14, 0.40), 64: (13, 0.50), 224: (3.5, 0.90)}  # against eager, of the bound


@lru_cache(maxsize=1)
def noise(size: int) -> Tensor:
    """A step costs the same whatever is in the images."""
    count = CLIENTS[size] * EPOCH * BATCH
    return torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8, device="cuda").cpu()


def clients_of(size: int, count: int) -> dict[str, ClientData]:
    """Half of each image's labels are blank, the same ones for one client as for many.

    With complete labels some methods do less: FedLSM has no teacher then.
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
        viewing=Preprocessing(views=Views(weak="flip"), mean=(0.5,), std=(0.5,)),
        round_count=100,
        seed=0,
    )


def method_of(name: str, steps: int, stage: str, together: int = 1) -> Method:
    """With the batches of so many clients ``together`` in one."""
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
    """Of the median of whole rounds, and the seconds of one more before them."""
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
    """While every slot plays the first batch of its chunk again and again; None if it cannot."""
    if engine.unrecordable:
        return None
    playing = [(slot, next(iter(slot.recordings.values()))) for slot in engine._slots]

    def play(count: int) -> None:
        for _ in range(count):
            for slot, recording in playing:
                with slot.at_work():
                    recording.chunk.next.zero_()
                    recording.player.play()
        torch.cuda.synchronize()

    play(5)
    began = time.perf_counter()
    play(REPLAYS)
    return REPLAYS * len(playing) * batch_size / (time.perf_counter() - began)


def images_per_second_in_a_bare_loop(size: int, steps: int) -> float:
    """Plain steps of one network by Adam, none of them recorded, on a batch that is there."""
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
    recorded = CudaGraphEngine(task, many)
    fast, recording = images_per_second(recorded, method, task, rounds)
    fast_steps = images_per_second_in_steps(recorded, BATCH)
    reason = recorded.unrecordable or ""
    del recorded
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
    bare = images_per_second_in_a_bare_loop(size, steps) if name == "fedavg-pl" else None
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
        "first_round_s": round(recording, 1),
        "eager_images_per_s": round(eager),
        "recorded_images_per_s": round(fast),
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
        "unrecordable": reason,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", nargs="+", default=["fedavg-pl", "fedmlp", "fedlsm"])
    parser.add_argument("--sizes", nargs="+", type=int, default=[28, 64, 224])
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=STAGES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3 * EPOCH, help="per client and round")
    parser.add_argument("--out", default="gpu", help="name of the CSV in benchmarks/results")
    options = parser.parse_args()
    rows = []
    for size in options.sizes:
        for name in options.methods:
            own = STAGES[1:] if name == "fedmlp" else STAGES[:1]
            for stage in [stage for stage in own if stage in options.stages]:
                rows.append(measure(name, size, stage, options.rounds, options.steps))
                print(rows[-1], flush=True)
                write_results(options.out, rows, device="cuda")  # a lent machine may be taken away


if __name__ == "__main__":
    main()
