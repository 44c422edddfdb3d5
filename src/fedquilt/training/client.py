"""run_client(): one client's round, the same code on every engine."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from threading import Event

import torch
from torch import Tensor, nn

from fedquilt.core.errors import UserError
from fedquilt.core.noise import Draws, SeededNoise
from fedquilt.core.payload import Mean, Update, placed
from fedquilt.core.seeding import generator_for, seed_network_draws
from fedquilt.core.tree import Weights, moved
from fedquilt.data.batches import Batch, ordered_batches
from fedquilt.data.client_data import ClientData
from fedquilt.models.cast_weights import cast_functional
from fedquilt.models.network import LiveWeights, Network, Output
from fedquilt.training.client_step import (
    names_of_draws,
    observe_batch,
    stage_optimizer,
    step_batches,
    step_count,
    take_step,
    trained_parameters,
)
from fedquilt.training.method import Local, Method, Stage, State
from fedquilt.training.private_step import private_gradients, take_private_step
from fedquilt.training.task import Task

LOSS_PART = "training_loss"  # added by the engine to what a method sends
HOST = torch.device("cpu")


class Interrupted(Exception):
    """Raised when a client's round is cancelled."""


@dataclass(frozen=True)
class Workspace:
    """Scratch networks that the clients on this machine use in turn."""

    training: Network
    frozen: Network  # always in evaluation mode; every call passes the weights
    device: torch.device
    prediction_batch: int = 256  # batch size of predictions
    draws: Draws = SeededNoise  # of noise, if the task adds any
    interrupt: Event = field(default_factory=Event)  # once set, rounds stop before their next step

    @classmethod
    def of(cls, task: Task, device: torch.device) -> Workspace:
        networks = [task.build_network().to(device) for _ in range(2)]
        return cls(networks[0].train(), networks[1].eval(), device)

    @cached_property
    def trained(self) -> LiveWeights:
        """The weights of the network in training."""
        return LiveWeights(self.training)

    def twin(self) -> Workspace:
        """Return a copy for a concurrent client; both are interrupted by the same event."""
        networks = copy.deepcopy((self.training, self.frozen))
        return replace(self, training=networks[0], frozen=networks[1])

    def forward(self, weights: Weights, images: Tensor) -> Output:
        with torch.no_grad(), self._casting(weights):
            output: Output = torch.func.functional_call(self.frozen, weights, (images,))
        return output

    def _casting(self, weights: Weights) -> AbstractContextManager[None]:
        kind = self.device.type
        if not torch.is_autocast_enabled(kind):
            return nullcontext()
        return cast_functional(self.frozen, weights, torch.get_autocast_dtype(kind))

    def predict(
        self, batches: Callable[[str, int], Iterator[Batch]], weights: Weights, view: str
    ) -> Output:
        """Return features and logits of all images of a client, in their order."""
        outputs = [
            self.forward(weights, batch.views[0]) for batch in batches(view, self.prediction_batch)
        ]
        features, logits, _ = zip(*outputs)  # without features per class: they take too much memory
        return Output(torch.cat(features), torch.cat(logits))


@dataclass
class Training:
    """The results of a client's stages."""

    loss: Tensor  # summed over all steps
    steps: int = 0
    memory: State = field(default_factory=dict)  # optimizer states by stage, if they are kept


def run_client(
    method: Method,
    task: Task,
    workspace: Workspace,
    data: ClientData,
    received: State,
    kept: State,
    round_index: int,
    *,
    has_own_draws: bool = True,
) -> tuple[Update, State]:
    """Train for one round; return the client's update and the state it keeps.

    All randomness is seeded by names (run, round, client), so neither the order of clients nor an
    interruption changes a bit.

    Args:
        has_own_draws: seed torch's global generator, which dropout uses, for this client. Set it to
            False in threads: they share that generator.
    """
    names = names_of_draws(task, data.name, round_index)
    with _drawing(workspace.device, *names, "network") if has_own_draws else nullcontext():
        here = moved(received, workspace.device)
        local = open_round(method, task, workspace, data, here, kept, round_index)
        workspace.trained.write(method.initial_weights(local))
        local.state = method.begin(local)
        done = Training(torch.zeros((), device=workspace.device))
        for number, stage in enumerate(method.stages(round_index)):
            local.stage, local.stage_number = stage.name, number
            if stage.trains:
                _train(method, task, workspace, local, stage, kept.get("optimizer", {}), done)
            else:
                _observe(method, task, workspace, local, stage)
    require_finite(done.loss, local)
    update, state = close_round(method, local, workspace.trained.read(), done)
    if task.privacy.training:  # the loss and the number of steps would tell about the data
        update = {**update, LOSS_PART: Mean(torch.zeros(()), 1.0)}
    return placed(update, HOST), moved(state, HOST)


def open_round(
    method: Method,
    task: Task,
    workspace: Workspace,
    data: ClientData,
    received: State,
    kept: State,
    round_index: int,
) -> Local:
    """Return the client's view before its first hook; ``received`` must be on the device."""
    device = workspace.device
    names = names_of_draws(task, data.name, round_index)
    draws = generator_for(*names, "predictions")
    batches = partial(ordered_batches, data, task.preprocessing, draws, device)
    return Local(
        round_index=round_index,
        received=received,
        state=moved(kept["method"] if "method" in kept else method.init_client(data), device),
        data=data.to(device),
        layout=task.layout,
        model=workspace.training,
        forward=workspace.forward,
        predict=partial(workspace.predict, batches),
        generator=generator_for(*names, "method"),
        feature_clip=task.privacy.feature_clip if task.privacy.parts else None,
    )


def close_round(
    method: Method, local: Local, weights: Weights, done: Training
) -> tuple[Update, State]:
    """Return the client's update and the state it keeps."""
    update, state = method.finish(local, weights, done.steps)
    new = {"method": state} | ({"optimizer": done.memory} if done.memory else {})
    return {**update, LOSS_PART: Mean(done.loss / done.steps, float(done.steps))}, new


def _train(
    method: Method,
    task: Task,
    workspace: Workspace,
    local: Local,
    stage: Stage,
    memory: State,
    done: Training,
) -> None:
    """Run the steps of a stage that trains."""
    parameters = trained_parameters(workspace.training, stage)
    optimizer = stage_optimizer(method, task, local, parameters)
    if method.training.keep_optimizer and stage.name in memory:
        optimizer.load_state(memory[stage.name])
    live = {name: parameter.detach() for name, parameter in parameters.items()}
    if task.privacy.training:
        for gradients in _private_gradients(method, task, workspace, local, stage, parameters):
            take_private_step(method, local, gradients, parameters, live, optimizer)
            done.steps += 1
    else:
        for batch in _batches(method, task, workspace, local, stage):
            done.loss += take_step(method, local, batch, parameters, live, optimizer)
            done.steps += 1
    if method.training.keep_optimizer:
        done.memory[stage.name] = optimizer.state()


def _observe(method: Method, task: Task, workspace: Workspace, local: Local, stage: Stage) -> None:
    """Pass over the batches of a stage that does not train."""
    for batch in _batches(method, task, workspace, local, stage):
        observe_batch(method, local, batch)


def _private_gradients(
    method: Method,
    task: Task,
    workspace: Workspace,
    local: Local,
    stage: Stage,
    parameters: dict[str, nn.Parameter],
) -> Iterator[Weights]:
    """Yield the noised gradients of a stage; raise Interrupted if the round is cancelled."""
    names = names_of_draws(task, local.data.name, local.round_index)
    source = workspace.draws(*names, "noise", local.stage_number)
    steps = step_count(method, stage, method.pools(local)[0], len(local.data))
    for gradients in private_gradients(method, task, local, parameters, source, steps):
        if workspace.interrupt.is_set():
            raise Interrupted
        yield gradients


def _batches(
    method: Method, task: Task, workspace: Workspace, local: Local, stage: Stage
) -> Iterator[Batch]:
    """Yield the batches of a stage; raise Interrupted if the round is cancelled."""
    pools = method.pools(local)
    steps = step_count(method, stage, pools[0], len(local.data))
    for batch in step_batches(method, task, local, pools, steps, workspace.device):
        if workspace.interrupt.is_set():
            raise Interrupted
        yield batch


@contextmanager
def _drawing(device: torch.device, *names: int | str) -> Iterator[None]:
    """Seed torch's global generators by these names, and restore them afterwards."""
    with torch.random.fork_rng(devices=[]):
        seed_network_draws(device, *names)
        yield


def require_finite(loss: Tensor, local: Local) -> None:
    found = loss.item()
    if not math.isfinite(found):
        raise UserError(
            f"the training loss of client {local.data.name!r} became {found} in round "
            f"{local.round_index}; lower method.training.lr, or set method.training.clip_norm"
        )
