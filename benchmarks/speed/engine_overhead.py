"""Overhead of the sequential engine over a hand-written PyTorch loop of the same steps.

    python -m benchmarks.speed.engine_overhead

Both train FedAvg-PL for a round on the same images with the same network, batch size and optimizer,
in one process. They alternate, and the result is the ratio of their CPU times: on one thread these
do not depend on the machine's other load.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import torch
import torch.nn.functional as F

from benchmarks.harness.result_csv import write_results
from fedquilt.data.augmentation.views import Preprocessing, Views
from fedquilt.data.client_data import ClientData
from fedquilt.engines.sequential import SequentialEngine
from fedquilt.methods.fedavg_pl import FedAvgPL
from fedquilt.models.network import Network
from fedquilt.models.spec import ModelSpec
from fedquilt.training.local_training import LocalTraining
from fedquilt.training.method import State
from fedquilt.training.rounds import run_rounds, start_server
from fedquilt.training.task import Task

CLIENTS, CLASSES, BATCH = 3, 3, 32
SETTINGS = {  # name: backbone, channels, pixels, images per client, pairs of measurements
    "small-cnn 16 px": ("small-cnn", 1, 16, 320, 40),
    "small-resnet 32 px": ("small-resnet", 3, 32, 160, 20),
    "resnet18 64 px": ("resnet18", 3, 64, 256, 7),
}


def make_task(backbone: str, channels: int, pixels: int) -> Task:
    return Task(
        classes=tuple(f"class {number}" for number in range(CLASSES)),
        clients=tuple(f"client-{number}" for number in range(CLIENTS)),
        image_shape=(channels, pixels, pixels),
        model=ModelSpec(backbone=backbone),
        preprocessing=Preprocessing(views=Views(weak="plain"), mean=(0.5,), std=(0.5,)),
        round_count=1,
        seed=0,
    )


def make_clients(task: Task, count: int) -> dict[str, ClientData]:
    generator = torch.Generator().manual_seed(0)
    clients = {}
    for number, name in enumerate(task.clients):
        known = torch.zeros(count, CLASSES, dtype=torch.bool)
        known[:, number % CLASSES] = True
        labels = torch.randint(0, 2, (count, CLASSES), generator=generator).to(torch.uint8)
        images = torch.randint(0, 256, (count, *task.image_shape), generator=generator)
        clients[name] = ClientData(name, images.to(torch.uint8), torch.arange(count), labels, known)
    return clients


def by_engine(task: Task, engine: SequentialEngine, method: FedAvgPL, server: State) -> None:
    for _ in run_rounds(method, task, engine, server):
        pass


def by_hand(model: Network, clients: dict[str, ClientData], lr: float) -> None:
    """Train one round of FedAvg-PL, as a researcher would write it."""
    start = {name: value.clone() for name, value in model.state_dict().items()}
    average = {name: torch.zeros_like(value, dtype=torch.float64) for name, value in start.items()}
    for data in clients.values():
        model.load_state_dict(start)
        model.train()
        optimizer = torch.optim.Adam(model.parameters(), lr=lr)
        weight = len(data) / (data.labels * data.known).sum(0).clamp(min=1)
        labels = data.labels.float()
        for rows in torch.randperm(len(data)).split(BATCH):
            images = (data.images[rows] / 255 - 0.5) / 0.5
            losses = F.binary_cross_entropy_with_logits(
                model(images).logits, labels[rows], pos_weight=weight, reduction="none"
            )
            loss = (losses * data.known[rows]).sum() / data.known[rows].sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        for name, value in model.state_dict().items():
            average[name] += value.double() * (len(data) / sum(map(len, clients.values())))
    model.load_state_dict({name: average[name].to(start[name].dtype) for name in start})


def measure(
    backbone: str, channels: int, pixels: int, count: int, repeats: int
) -> dict[str, float]:
    task = make_task(backbone, channels, pixels)
    clients = make_clients(task, count)
    method = replace(FedAvgPL(), training=LocalTraining(lr=1e-3, batch_size=BATCH))
    engine, model = SequentialEngine(task, clients), task.build_network()
    server = start_server(method, task, engine)
    times: dict[str, list[float]] = {"engine": [], "hand": []}
    for repeat in range(repeats + 1):  # the first pair warms up
        works: tuple[tuple[str, Callable[[], object]], ...] = (
            ("engine", lambda: by_engine(task, engine, method, server)),
            ("hand", lambda: by_hand(model, clients, 1e-3)),
        )
        for name, work in works:
            began = time.process_time()
            work()
            if repeat:
                times[name].append(time.process_time() - began)
    ratios = [mine / theirs for mine, theirs in zip(times["engine"], times["hand"])]
    return {
        "steps": CLIENTS * -(-count // BATCH),
        "hand_seconds": round(statistics.median(times["hand"]), 4),
        "engine_seconds": round(statistics.median(times["engine"]), 4),
        "ratio_of_medians": round(
            statistics.median(times["engine"]) / statistics.median(times["hand"]), 4
        ),
        "median_ratio": round(statistics.median(ratios), 4),
        "repeats": repeats,
    }


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    torch.set_num_threads(1)
    rows = []
    for name, setting in SETTINGS.items():
        row = {"setting": name} | measure(*setting)
        print(f"{name}: engine / hand-written = {row['median_ratio']:.3f}")
        rows.append(row)
    write_results("speed/engine_overhead", rows)


if __name__ == "__main__":
    main()
