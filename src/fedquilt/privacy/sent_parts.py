"""What a method's clients send: its parts, read from the method on an example task."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from fedquilt.core.fixed_point import Summation, refuse_gathered
from fedquilt.core.payload import Gather, Mean, Part, Update, weight_of
from fedquilt.core.registry import find
from fedquilt.core.totals import Accumulator
from fedquilt.core.tree import leaves
from fedquilt.data.augmentation.views import Preprocessing, Views
from fedquilt.data.client_data import ClientData
from fedquilt.methods import all_methods
from fedquilt.models.network import read_weights
from fedquilt.models.spec import ModelSpec
from fedquilt.training.method import Method
from fedquilt.training.rounds import expected_update
from fedquilt.training.task import Task

EXAMPLE = "5 classes, small-cnn, images of 1 x 16 x 16"


@dataclass(frozen=True, kw_only=True)
class SentPart:
    name: str
    kind: str  # Sum, Mean or Gather
    tensors: dict[str, tuple[int, ...]]  # name (empty for a part of one tensor) -> shape
    weight_shape: tuple[int, ...] | None  # of a Mean; sent with the value
    can_be_summed_securely: bool
    per_image: bool = False  # shapes are for one image, not for the client

    @property
    def numbers(self) -> int:
        return sum(math.prod(shape) for shape in self.tensors.values())

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "kind": self.kind,
            "tensors": {name: list(shape) for name, shape in self.tensors.items()},
            "numbers": self.numbers,
            "weight_shape": None if self.weight_shape is None else list(self.weight_shape),
            "can_be_summed_securely": self.can_be_summed_securely,
            "per_image": self.per_image,
        }


def sent_parts(method_name: str) -> list[SentPart]:
    """Return every part of a round's update, for the task described by ``EXAMPLE``."""
    method: Method = find("method", all_methods(), method_name)()
    update = update_template(method, example_task(method))
    return [_describe(name, part) for name, part in update.items()]


def update_template(method: Method, task: Task) -> Update:
    """Return an update of the first round, with the right names, kinds and shapes."""
    survey = Accumulator(method.survey(example_data(task)), len(task.clients))
    for client in task.clients:
        survey.add(client, method.survey(example_data(task)))
    server = method.init_server(read_weights(task.build_network()), task, survey.totals())
    return expected_update(method, method.broadcast(server), task.clients[0], task)


def check_can_be_summed(method: Method, task: Task, summation: Summation) -> None:
    """Raise UserError if the method, with its own settings, sends what cannot be summed."""
    if summation != "plain":
        refuse_gathered(method.survey(example_data(task)), summation)
        refuse_gathered(update_template(method, task), summation)


def surveyed_parts(method_name: str) -> list[SentPart]:
    """Return every part of the survey's answer, which is sent once before the first round."""
    method: Method = find("method", all_methods(), method_name)()
    answer = method.survey(example_data(example_task(method)))
    return [_describe(name, part) for name, part in answer.items()]


def _describe(name: str, part: Part) -> SentPart:
    return SentPart(
        name=name,
        kind=type(part).__name__,
        tensors={path: tuple(leaf.shape) for path, leaf in leaves(part.value)},
        weight_shape=tuple(weight_of(part).shape) if isinstance(part, Mean) else None,
        can_be_summed_securely=not isinstance(part, Gather),
        per_image=isinstance(part, Gather) and part.any_length,
    )


def example_data(task: Task) -> ClientData:
    """Return two identical black images with every label annotated.

    As they are identical, a part sent per image has one row.
    """
    labels = torch.tensor([[0], [1]], dtype=torch.uint8).repeat(1, task.class_count)
    return ClientData(
        name=task.clients[0],
        images=torch.zeros((2, *task.image_shape), dtype=torch.uint8),
        indices=torch.arange(2),
        labels=labels,
        known=torch.ones_like(labels, dtype=torch.bool),
        secret=b"example",
    )


def example_task(method: Method) -> Task:
    model = method.model_spec(ModelSpec())
    return Task(
        classes=tuple(f"class {number}" for number in range(5)),
        clients=("a", "b"),
        image_shape=(1, 16, 16),
        model=model,
        preprocessing=Preprocessing(views=Views(), mean=model.mean, std=model.std),
        round_count=1,
        seed=0,
    )
