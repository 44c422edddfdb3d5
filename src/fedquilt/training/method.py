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
from fedquilt.training.activity import LABELS_FILLED_IN, Activity, RunSize
from fedquilt.training.contribution import Contribution
from fedquilt.training.local_training import LocalTraining
from fedquilt.training.parts import DeclaredPart
from fedquilt.training.privacy_settings import Privacy
from fedquilt.training.provenance import Provenance
from fedquilt.training.task import Task

State: TypeAlias = dict[str, Any]  # a tree of tensors: it is sent, stored and checkpointed


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One training phase of a client's round, with its own optimizer; most rounds have one stage.

    A stage that does not train passes once over all images and calls :meth:`Method.observe`.
    """

    name: str = "train"
    steps: int | None = None  # as in ``training``, if left out
    frozen: tuple[str, ...] = ()  # prefixes of the names of weights that are not trained
    trains: bool = True


@dataclass
class Local:
    """What the hooks of a client's round see; ``state`` is what the last hook returned."""

    round_index: int
    received: State  # the server's broadcast
    state: State
    data: ClientData
    layout: Layout
    model: Network  # the network in training
    forward: Callable[[Weights, Tensor], Output]  # any weights, evaluation mode, no gradient
    predict: Callable[[Weights, str], Output]  # any weights over all local images, in a named view
    generator: torch.Generator
    stage: str = "train"  # the name of the current stage
    stage_number: int = 0  # and its position in the round
    feature_clip: float | None = None  # the norm of features in parts that leave with noise

    def scalar(self, value: float) -> Tensor:
        """A number as a tensor on the client's device."""
        return torch.full((), value, device=self.data.known.device)


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """A federated method: hyper-parameters are fields, behaviour is hooks, state is passed.

    Hooks in the order of a run:

    - before training: ``model_spec``; at a client ``survey``; at the server ``init_server``
    - a round at the server: ``broadcast``, ``expected_update``, ``update``
    - a round at a client: ``init_client`` (once), ``initial_weights``, ``begin``, then for every
      stage ``pools`` and its steps, then ``finish``
    - a step: ``sample_noise``, ``loss``, ``correct_gradients``, ``after_step``; without training
      ``observe``
    - after a round, for evaluation: ``global_weights``, ``client_weights``, ``pseudo_labels``
    - for the user: ``activity`` and ``server_activity`` count what only this method does,
      ``why_idle`` explains a count of 0, ``suited_to`` has settings for data of another size

    The hooks of a step do not branch on data: masks and ``torch.where``, never boolean indexing or
    ``.item()``. What they need of the client or the round beyond ``stage``, such as a ramp,
    ``begin`` puts into the state as a tensor: a CUDA graph captures Python numbers as constants.
    """

    training: LocalTraining = LocalTraining()  # how a client trains in a round

    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # named sets of fields
    fixed: ClassVar[Mapping[str, Any]] = {}  # settings that only a subclass may change
    pseudo_label_key: ClassVar[str | None] = None  # of the client's state, if it fills in labels
    squared_parts: ClassVar[frozenset[str]] = frozenset()  # their norms differ as squares do
    needs_complete_labels: ClassVar[bool] = False  # an upper bound, possible in simulation only
    needs_pooled_data: ClassVar[bool] = False  # another upper bound
    own_classes_only: ClassVar[bool] = False  # a client's model learns only what it annotates
    # ``image_loss`` and ``penalty`` make up the loss; a subclass has to say so anew
    trains_image_by_image: ClassVar[bool] = False

    @property
    def parts(self) -> Mapping[str, DeclaredPart]:
        """The parts of an update beside the weights, each declared once."""
        return {}

    @property
    def plans_by_round_count(self) -> bool:
        """Whether a round depends on how many follow it, so that a run cannot be extended."""
        return self.training.schedule == "cosine"

    @property
    def kept_parts(self) -> Mapping[str, DeclaredPart]:
        """The parts that the server keeps and broadcasts."""
        return {name: part for name, part in self.parts.items() if part.start is not None}

    @property
    def provenance(self) -> Mapping[str, Provenance]:
        """For every part of survey and rounds, the images its values are computed from."""
        declared = {name: part.provenance for name, part in self.parts.items()}
        return {"annotators": "annotated", **declared}

    def weight_limits(self, images: int, class_count: int) -> Mapping[str, float]:
        """The parts that may weigh more than the client's images, and how much at most."""
        return {}

    @property
    def ranges(self) -> Mapping[str, float]:
        """The largest absolute value of parts, where it is not the default."""
        return {name: part.largest for name, part in self.parts.items()}

    def contributions(self, privacy: Privacy) -> Mapping[str, Contribution]:
        """The parts of survey and rounds that noise can protect: what one image makes up."""
        declared = {name: part.contribution for name, part in self.parts.items()}
        return {name: image for name, image in declared.items() if image is not None}

    def views(self, round_index: int) -> tuple[str, ...]:
        """The augmented views of every image in this round's batches."""
        return ("weak",)

    def stages(self, round_index: int) -> tuple[Stage, ...]:
        """The training phases of this round, in order."""
        return (Stage(),)

    def pools(self, local: Local) -> tuple[Pool, ...]:
        """The images a step draws from; the first pool makes the batch and the epoch's length."""
        return (Pool(self.training.batch_size, self.views(local.round_index)),)

    def sample_noise(
        self, batch_size: int, class_count: int, generator: torch.Generator
    ) -> Tensor | None:
        """Random numbers for the loss of one step, passed to it as ``batch.drawn``."""
        return None

    def model_spec(self, wanted: ModelSpec) -> ModelSpec:
        """The network this method trains, given the recipe's."""
        return wanted

    def survey(self, data: ClientData) -> Update:
        """Label statistics that a client sends once, before the first round."""
        return {"annotators": Sum(data.known.any(0).to(torch.float32))}

    @abstractmethod
    def init_server(self, weights: Weights, task: Task, survey: Totals) -> State:
        """The server's state before the first round."""

    def surveyed_again(self, server: State, survey: Totals) -> State:
        """The server's state once further clients have joined and all were surveyed again."""
        return server

    def init_client(self, data: ClientData) -> State:
        """The client's state before its first round."""
        return {}

    def broadcast(self, server: State) -> State:
        """What every client of the cohort receives."""
        return server

    @abstractmethod
    def expected_update(self, received: State, task: Task) -> Update:
        """An update with the names, kinds, shapes and dtypes that a client has to send."""

    def initial_weights(self, local: Local) -> Weights:
        """The weights that local training starts from."""
        return self.client_weights(local.received, local.state)

    def begin(self, local: Local) -> State:
        """The client's state for this round."""
        return local.state

    @abstractmethod
    def loss(self, local: Local, batch: Batch) -> Tensor:
        """The loss of one step."""

    def image_loss(self, local: Local, batch: Batch) -> Tensor:
        """The loss of the one image in the batch, for private training.

        It depends on nothing but the image, its labels, and what the server sent.
        """
        raise NotImplementedError(f"{type(self).__name__} does not train image by image")

    def penalty(self, local: Local) -> Tensor | None:
        """The term of the loss that depends on no data, if there is one."""
        return None

    def step_loss(self, local: Local, batch: Batch) -> tuple[Tensor, State]:
        """The loss of one step and the state after it, for methods that count in the loss."""
        return self.loss(local, batch), local.state

    def correct_gradients(self, local: Local, gradients: Weights) -> tuple[Weights, State]:
        """The gradients for the optimizer."""
        return gradients, local.state

    def after_step(self, local: Local, weights: Weights) -> State:
        """Called after every optimizer step; returns the new state."""
        return local.state

    def observe(self, local: Local, batch: Batch) -> State:
        """Called per batch in a stage that does not train; returns the new state."""
        return local.state

    @abstractmethod
    def finish(self, local: Local, weights: Weights, steps: int) -> tuple[Update, State]:
        """The client's update, and the state it keeps until its next round."""

    @abstractmethod
    def update(self, server: State, totals: Totals) -> State:
        """The server's state after a round."""

    def global_weights(self, server: State) -> Weights | None:
        """The global model; None if every client has its own."""
        weights: Weights = server["weights"]
        return weights

    def client_weights(self, received: State, state: State) -> Weights:
        """The model that this client uses."""
        weights: Weights = received["weights"]
        return weights

    def pseudo_labels(self, state: State) -> Tensor | None:
        """The client's pseudo-labels, (n, C) int8, -1 for none."""
        return None if self.pseudo_label_key is None else state.get(self.pseudo_label_key)

    def activity(self, data: ClientData, state: State) -> Activity:
        """What only this method did in a client's round, counted; ``state`` is what it kept."""
        tags = self.pseudo_labels(state)
        return {} if tags is None else {LABELS_FILLED_IN: int((tags >= 0).sum())}

    def server_activity(self, server: State, size: RunSize) -> Activity:
        """What only this method's server does, counted after the last round."""
        return {}

    def why_idle(self, what: str, size: RunSize) -> str:
        """Why the count ``what`` was 0 in every round, and which setting changes that."""
        return "" if size.gaps else "every label is annotated"

    def suited_to(self, size: RunSize) -> Mapping[str, Any]:
        """Settings, other than the defaults, that suit data of this size."""
        return {}
