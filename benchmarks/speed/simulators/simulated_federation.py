"""One federation for all simulators: the same images, network, order of images, loss and clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from fedquilt.core.seeding import generator_for
from fedquilt.core.tree import Weights
from fedquilt.data.augmentation.views import Preprocessing, Views
from fedquilt.data.client_data import ClientData
from fedquilt.data.sources.digits_mosaic.load import DigitsMosaic
from fedquilt.models.network import Network
from fedquilt.models.spec import ModelSpec
from fedquilt.training.task import Task

BATCH, LEARNING_RATE = 32, 0.1
SIZES = (128, 160, 192)  # images of a client, in turn: aggregation has to use weights
ANNOTATED = 2  # classes that a client annotates
SETTINGS = {  # name: backbone, pixels, clients
    "small-cnn 16 px, 10 clients": ("small-cnn", 16, 10),
    "small-cnn 16 px, 50 clients": ("small-cnn", 16, 50),
    "small-resnet 32 px, 10 clients": ("small-resnet", 32, 10),
}


@dataclass(frozen=True)
class Federation:
    task: Task
    clients: dict[str, ClientData]  # in the order of the task's clients

    @property
    def steps(self) -> int:
        """Optimizer steps of all clients in a round."""
        return sum(-(-len(data) // BATCH) for data in self.clients.values())


@dataclass
class RoundLog:
    """When a simulator started, when each round ended, and the weights after each round."""

    cpu_clock: Callable[[], float] = time.process_time  # of all processes of the simulator
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)  # CPU seconds at the same moments
    weights: list[Weights] = field(default_factory=list)  # after each round

    def __post_init__(self) -> None:
        self._read_clocks()

    def end_round(self, weights: Weights) -> None:
        self._read_clocks()
        self.weights.append(weights)

    def _read_clocks(self) -> None:
        self.wall.append(time.perf_counter())
        self.cpu.append(self.cpu_clock())


def make_federation(setting: str, round_count: int = 1) -> Federation:
    warm_up_allocator()
    backbone, pixels, client_count = SETTINGS[setting]
    sizes = [SIZES[number % len(SIZES)] for number in range(client_count)]
    source = DigitsMosaic(canvas=pixels, train=sum(sizes), test=1)
    digits = source.load(Path()).train
    task = Task(
        classes=digits.classes,
        clients=tuple(f"client-{number:02}" for number in range(client_count)),
        image_shape=(1, pixels, pixels),
        model=ModelSpec(backbone=backbone),
        preprocessing=Preprocessing(views=Views(weak="plain"), mean=(0.5,), std=(0.5,)),
        round_count=round_count,
        seed=0,
    )
    clients = {}
    for number, (name, rows) in enumerate(zip(task.clients, torch.arange(sum(sizes)).split(sizes))):
        places = (torch.arange(ANNOTATED) + number) % task.class_count
        known = torch.zeros(len(rows), task.class_count, dtype=torch.bool)
        known[:, places] = True
        labels = digits.labels[rows] * known
        clients[name] = ClientData(name, digits.images, rows, labels, known)
    return Federation(task, clients)


def warm_up_allocator() -> None:
    """Make glibc's allocator keep freed memory in this process, for every tool alike.

    glibc raises its threshold after the first large block is freed, and a step of small-resnet then
    takes a tenth less time. Without this, a tool that frees such a block would speed up all tools
    that run after it.
    """
    torch.empty(30 << 20, dtype=torch.uint8)


def shuffled(task: Task, data: ClientData, round_index: int) -> Tensor:
    """Return a client's samples in the order in which fedquilt draws them this round."""
    order = generator_for(task.seed, "client", data.name, round_index, "order")
    return torch.randperm(len(data), generator=order)


def local_loss(network: Network, pixels: Tensor, labels: Tensor, known: Tensor) -> Tensor:
    """Return the cross-entropy over the annotated entries, as a researcher would write it."""
    logits = network((pixels / 255 - 0.5) / 0.5).logits
    losses = F.binary_cross_entropy_with_logits(logits, labels.float(), reduction="none")
    return (losses * known).sum() / known.sum()
