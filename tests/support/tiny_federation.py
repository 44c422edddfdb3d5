"""A federation of a few synthetic images that trains in milliseconds, for tests of methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fedquilt.core.settings import Tables, read
from fedquilt.data.augmentation.views import Preprocessing, Views
from fedquilt.data.client_data import ClientData
from fedquilt.engines.client_states import ClientStates
from fedquilt.engines.sequential import SequentialEngine
from fedquilt.methods import METHODS
from fedquilt.models.spec import ModelSpec
from fedquilt.training.method import Method, State
from fedquilt.training.rounds import run_rounds, start_server
from fedquilt.training.task import Task

CLASSES = ("round", "square", "bright")
SIZE = 8
METHOD_NAMES = tuple(METHODS)


TABLES: Tables = {Method: ("method", METHODS)}


def make_method(name: str, **settings: Any) -> Method:
    """A method by its name, quick enough for tests; staged methods leave their warm-up early."""
    method: Method = read(Method, {"name": name, **settings}, "method", TABLES)
    training = replace(method.training, batch_size=8, lr=0.01, epochs=1)
    early = {"warmup_rounds": 1} if hasattr(method, "warmup_rounds") else {}
    generous = (
        {"negative_share": 0.3, "positive_share": 0.3} if hasattr(method, "negative_share") else {}
    )
    narrow = {"width": 16} if hasattr(method, "width") else {}
    given = {
        key: value
        for key, value in settings.items()
        if key not in {*method.fixed, "variant"} and not isinstance(value, Mapping)
    }
    return replace(method, **{"training": training} | early | generous | narrow | given)


def synthetic_labels(count: int, generator: torch.Generator) -> Tensor:
    return (torch.rand(count, len(CLASSES), generator=generator) < 0.4).to(torch.uint8)


def synthetic_images(labels: Tensor, generator: torch.Generator) -> Tensor:
    """Noise in which each class lights up its own band of rows."""
    images = torch.rand(len(labels), 1, SIZE, SIZE, generator=generator) * 80
    for column in range(len(CLASSES)):
        images[:, :, 2 * column : 2 * column + 2] += 120 * labels[:, column, None, None, None]
    return images.to(torch.uint8)


@dataclass(frozen=True)
class Federation:
    task: Task
    clients: Mapping[str, ClientData]

    def fitted(self, method: Method) -> Federation:
        """With the network that the method trains."""
        return replace(self, task=replace(self.task, model=method.model_spec(self.task.model)))

    def shortened(self, **lengths: int) -> Federation:
        """With so many images at these clients; ``site_0`` means site-0."""
        clients = dict(self.clients)
        for name, length in lengths.items():
            data = clients[name.replace("_", "-")]
            clients[data.name] = replace(
                data,
                indices=data.indices[:length],
                labels=data.labels[:length],
                known=data.known[:length],
            )
        return replace(self, clients=clients)

    def engine(self, states: ClientStates | None = None) -> SequentialEngine:
        return SequentialEngine(self.task, self.clients, states=states)

    def train(self, method: Method, *, cohort_size: int | None = None) -> State:
        """The server's state after all rounds."""
        task, engine = self.fitted(method).task, self.fitted(method).engine()
        server = start_server(method, task, engine)
        for round_ in run_rounds(method, task, engine, server, cohort_size=cohort_size):
            server = round_.server
        return server


def make_federation(
    *,
    annotated: Sequence[Sequence[int]] = ((0,), (1,), (2,)),
    images_each: int = 21,
    rounds: int = 3,
    garbage: int | None = None,
    backbone: str = "small-cnn",
    reverse: bool = False,
) -> Federation:
    """One client per entry of ``annotated``, which lists the classes it annotates.

    ``garbage`` stands in the labels a client has not annotated; ``reverse`` names the clients in
    the opposite order.
    """
    clients = {}
    for number, columns in enumerate(annotated):
        generator = torch.Generator().manual_seed(number)
        truth = synthetic_labels(images_each, generator)
        known = torch.zeros(images_each, len(CLASSES), dtype=torch.bool)
        known[:, list(columns)] = True
        hidden = torch.full_like(truth, 0 if garbage is None else garbage)
        name = f"site-{number}"
        clients[name] = ClientData(
            name=name,
            images=synthetic_images(truth, generator),
            indices=torch.arange(images_each),
            labels=torch.where(known, truth, hidden),
            known=known,
            secret=b"shared by all sites",
        )
    if reverse:
        clients = dict(reversed(clients.items()))
    task = Task(
        classes=CLASSES,
        clients=tuple(clients),
        image_shape=(1, SIZE, SIZE),
        model=ModelSpec(backbone=backbone),
        preprocessing=Preprocessing(views=Views(weak="weak"), mean=(0.5,), std=(0.5,)),
        round_count=rounds,
        seed=7,
    )
    return Federation(task, clients)
