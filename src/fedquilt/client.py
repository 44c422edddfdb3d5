"""run_client(): one client's round, the same code on every engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from fedquilt.data.client_data import ClientData
from fedquilt.data.loading.batches import Batch, ordered_batches, steps_per_epoch, train_batches
from fedquilt.errors import UserError
from fedquilt.local_optimizer import LocalOptimizer, gradients_of
from fedquilt.method import Local, Method, State
from fedquilt.models.network import Network, Output, read_weights, write_weights
from fedquilt.payload import Mean, Update, on_cpu
from fedquilt.seeding import generator_for, seed_for
from fedquilt.task import Task
from fedquilt.tree import Weights, moved

LOSS_PART = "training_loss"  # added by the engine to what a method sends
PREDICTION_BATCH = 256


@dataclass(frozen=True)
class Workspace:
    """Scratch networks that every client on this machine uses in turn."""

    training: Network
    frozen: Network  # always in evaluation mode; weights are lent to it call by call
    device: torch.device

    @classmethod
    def of(cls, task: Task, device: torch.device) -> Workspace:
        networks = [task.build_network().to(device) for _ in range(2)]
        return cls(networks[0].train(), networks[1].eval(), device)

    def forward(self, weights: Weights, images: Tensor) -> Output:
        with torch.no_grad():
            output: Output = torch.func.functional_call(self.frozen, weights, (images,))
        return output

    def predict(
        self, batches: Callable[[str, int], Iterator[Batch]], weights: Weights, view: str
    ) -> Output:
        """Features and logits of all of a client's images, in the order it holds them."""
        outputs = [
            self.forward(weights, batch.views[0]) for batch in batches(view, PREDICTION_BATCH)
        ]
        return Output(*(torch.cat(column) for column in zip(*outputs)))


def run_client(
    method: Method,
    task: Task,
    workspace: Workspace,
    data: ClientData,
    received: State,
    kept: State,
    round_index: int,
) -> tuple[Update, State]:
    """Train for one round; return what is sent and what the client keeps.

    All randomness comes from the names (run, round, client), so neither the order of clients nor
    an interruption changes a bit.
    """
    names = _names(task, data, round_index)
    device = workspace.device
    draws = generator_for(*names, "predictions")
    batches = partial(ordered_batches, data, task.viewing, draws, device)
    local = Local(
        round_index=round_index,
        received=moved(received, device),
        state=moved(kept.get("method") or method.init_client(data), device),
        data=data.to(device),
        layout=task.layout,
        model=workspace.training,
        forward=workspace.forward,
        predict=partial(workspace.predict, batches),
        generator=generator_for(*names, "method"),
        batches=batches,
    )
    with torch.random.fork_rng(devices=[]):  # dropout and the like draw from torch's own generator
        torch.manual_seed(seed_for(*names, "network"))
        write_weights(workspace.training, method.start(local))
        local.state = method.begin(local)
        optimizer, loss, steps = _train(method, task, workspace, local, kept.get("optimizer"))
    weights = read_weights(workspace.training)
    update, state = method.finish(local, weights, steps)
    new = {"method": state} | ({"optimizer": optimizer.state()} if optimizer else {})
    sent = on_cpu({**update, LOSS_PART: Mean(loss, float(steps))})
    return sent, moved(new, torch.device("cpu"))


def _train(
    method: Method, task: Task, workspace: Workspace, local: Local, memory: State | None
) -> tuple[LocalOptimizer | None, Tensor, int]:
    """The step loop. The optimiser is returned only if its memory is to be kept."""
    training = method.training
    names = workspace.training.named_parameters()
    parameters = {name: entry for name, entry in names if entry.requires_grad}
    optimizer = LocalOptimizer(
        parameters,
        training,
        training.lr_at(local.round_index, task.round_count),
        local.layout.head,
        local.data.known.any(0),
    )
    if training.keep_optimizer and memory:
        optimizer.load_state(memory)
    per_epoch = steps_per_epoch(len(local.data), training.batch_size)
    steps = training.steps or training.epochs * per_epoch
    live = {name: parameter.detach() for name, parameter in parameters.items()}
    total = torch.zeros((), device=workspace.device)
    for batch in train_batches(
        local.data,
        method.views(local.round_index),
        task.viewing,
        batch_size=training.batch_size,
        step_count=steps,
        order=generator_for(*_names(task, local.data, local.round_index), "order"),
        augmentation=generator_for(*_names(task, local.data, local.round_index), "augmentation"),
        device=workspace.device,
    ):
        total += _step(method, local, batch, parameters, live, optimizer)
    _require_finite(total, local)
    return optimizer if training.keep_optimizer else None, total / steps, steps


def _step(
    method: Method,
    local: Local,
    batch: Batch,
    parameters: dict[str, nn.Parameter],
    live: Weights,
    optimizer: LocalOptimizer,
) -> Tensor:
    """One optimiser step; returns its loss."""
    precise = method.training.precision == "float32"
    with torch.autocast(batch.rows.device.type, torch.bfloat16, enabled=not precise):
        loss = method.loss(local, batch)
    optimizer.forget_gradients()  # only now: backward then reuses their memory while it is warm
    loss.backward()
    gradients, local.state = method.correct(local, gradients_of(parameters))
    optimizer.step(gradients)
    local.state = method.after_step(local, live)
    return loss.detach()


def _names(task: Task, data: ClientData, round_index: int) -> tuple[int | str, ...]:
    """What a client's randomness in a round is named by."""
    return (task.seed, "client", data.name, round_index)


def _require_finite(loss: Tensor, local: Local) -> None:
    if not bool(torch.isfinite(loss)):
        raise UserError(
            f"the training loss of client {local.data.name!r} became {loss.item()} in round "
            f"{local.round_index}; lower method.training.lr, or set method.training.clip_norm"
        )
