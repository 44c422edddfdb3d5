"""Method: a federated method as a frozen value with hooks; Local: what a client sees in a round."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import torch
from torch import Tensor

from fedquilt.core.payload import Sum, Update
from fedquilt.core.totals import Totals
from fedquilt.core.tree import Weights
from fedquilt.data.batches import Batch, Pool
from fedquilt.data.client_data import ClientData
from fedquilt.models.network import Layout, Network, Output
from fedquilt.models.spec import ModelSpec
from fedquilt.training.local_training import LocalTraining
from fedquilt.training.provenance import Provenance
from fedquilt.training.task import Task

State: TypeAlias = dict[str, Any]  # a tree of tensors: it is sent, stored and checkpointed


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A stretch of a client's round with an optimiser of its own; most rounds are one stage.

    A stage that does not train only looks: once at every image, see :meth:`Method.observe`.
    """

    name: str = "train"
    steps: int | None = None  # as the training says, if left out
    frozen: tuple[str, ...] = ()  # weights whose names begin so are not trained
    trains: bool = True


@dataclass
class Local:
    """What a client sees in a round; ``state`` is replaced by what the hooks return."""

    round_index: int
    received: State  # the server's broadcast
    state: State
    data: ClientData
    layout: Layout
    model: Network  # in training
    forward: Callable[[Weights, Tensor], Output]  # any weights, evaluation mode, no gradient
    predict: Callable[[Weights, str], Output]  # any weights over all local images, in a named view
    generator: torch.Generator
    stage: str = "train"  # the name of the stage that is running
    stage_number: int = 0  # and its place in the round

    def scalar(self, value: float) -> Tensor:
        """A number as the state can hold it, where the client computes."""
        return torch.full((), value, device=self.data.known.device)


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """Hyper-parameters are fields, behaviour is hooks, state goes in and comes out.

    The hooks inside a step (``loss``, ``correct_gradients``, ``after_step``, ``observe``) do not
    branch on data: masks and ``torch.where``, never boolean indexing or ``.item()``. What they need
    of the client or the round beyond ``stage``, such as a ramp, ``begin`` puts into the state as a
    tensor: a CUDA graph captures Python numbers as constants.
    """

    training: LocalTraining = LocalTraining()  # how a client trains in a round

    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # named sets of fields
    needs_complete_labels: ClassVar[bool] = False  # an upper bound, possible in simulation only
    needs_pooled_data: ClassVar[bool] = False  # likewise

    def views(self, round_index: int) -> tuple[str, ...]:
        """The augmentations each batch of this round carries."""
        return ("weak",)

    def stages(self, round_index: int) -> tuple[Stage, ...]:
        """The stretches of this round, in order."""
        return (Stage(),)

    def pools(self, local: Local) -> tuple[Pool, ...]:
        """What each step draws from: the first pool makes the batch and sets the epoch's length."""
        return (Pool(self.training.batch_size, self.views(local.round_index)),)

    def sample_noise(
        self, batch_size: int, class_count: int, generator: torch.Generator
    ) -> Tensor | None:
        """Random numbers for one step's loss, which finds them in ``batch.drawn``."""
        return None

    def model_spec(self, wanted: ModelSpec) -> ModelSpec:
        """The network this method trains, given the one the recipe asks for."""
        return wanted

    def survey(self, data: ClientData) -> Update:
        """Label statistics asked for once, before the first round."""
        return {"annotators": Sum(data.known.any(0).to(torch.float32))}

    @property
    def provenance(self) -> Mapping[str, Provenance]:
        """For every part of survey and rounds, the images its numbers are computed from."""
        return {"annotators": "annotated", **dict.fromkeys(("body", "head", "buffers"), "images")}

    @abstractmethod
    def init_server(self, weights: Weights, task: Task, survey: Totals) -> State: ...

    def init_client(self, data: ClientData) -> State:
        return {}

    def broadcast(self, server: State) -> State:
        return server

    @abstractmethod
    def expected_update(self, received: State, task: Task) -> Update:
        """An update as a client would send it: names, kinds, shapes and dtypes are read off it."""

    def initial_weights(self, local: Local) -> Weights:
        """The weights local training begins with."""
        weights: Weights = local.received["weights"]
        return weights

    def begin(self, local: Local) -> State:
        return local.state

    @abstractmethod
    def loss(self, local: Local, batch: Batch) -> Tensor: ...

    def correct_gradients(self, local: Local, gradients: Weights) -> tuple[Weights, State]:
        """The gradients the optimiser is to use."""
        return gradients, local.state

    def after_step(self, local: Local, weights: Weights) -> State:
        return local.state

    def observe(self, local: Local, batch: Batch) -> State:
        """In a stage that does not train, what the client makes of a batch."""
        return local.state

    @abstractmethod
    def finish(self, local: Local, weights: Weights, steps: int) -> tuple[Update, State]:
        """What is sent, and what the client keeps until its next round."""

    @abstractmethod
    def update(self, server: State, totals: Totals) -> State: ...

    def global_weights(self, server: State) -> Weights | None:
        """The model for everybody; None where every client has its own."""
        weights: Weights = server["weights"]
        return weights

    def client_weights(self, received: State, state: State) -> Weights:
        """The model this client would use."""
        weights: Weights = received["weights"]
        return weights

    def pseudo_labels(self, state: State) -> Tensor | None:
        """Labels the client filled in itself, (n, C) int8, -1 for none: the ``tags`` it keeps."""
        tags: Tensor | None = state.get("tags")
        return tags
