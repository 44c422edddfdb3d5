"""The steps of a stage: batches, optimizer and hooks; the same code on every engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn

from fedquilt.core.seeding import generator_for
from fedquilt.core.tree import Weights
from fedquilt.data.batches import Batch, Pool, pool_steps, train_batches
from fedquilt.models.cast_weights import cast_parameters
from fedquilt.training.local_optimizer import LocalOptimizer, gradients_of
from fedquilt.training.method import Local, Method, Stage
from fedquilt.training.task import Task


def step_batches(
    method: Method,
    task: Task,
    local: Local,
    pools: Sequence[Pool],
    steps: int,
    device: torch.device,
) -> Iterator[Batch]:
    """Yield each step's batch, with one from every further pool and the step's random numbers."""
    streams = [
        train_batches(
            local.data,
            pool,
            task.preprocessing,
            step_count=steps,
            order=pool_generator(task, local, "order", place),
            augmentation=pool_generator(task, local, "augmentation", place),
            device=device,
        )
        for place, pool in enumerate(pools)
    ]
    for batch, *beside in zip(*streams):
        drawn = method.sample_noise(len(batch.rows), task.class_count, local.generator)
        if drawn is not None or beside:
            there = None if drawn is None else drawn.to(device)
            batch = replace(batch, drawn=there, beside=tuple(beside))
        yield batch


def step_count(method: Method, stage: Stage, pool: Pool, size: int) -> int:
    training, per_epoch = method.training, pool_steps(pool, size)
    if not stage.trains:
        return per_epoch
    return stage.steps or training.steps or training.epochs * per_epoch


def trained_parameters(network: nn.Module, stage: Stage) -> dict[str, nn.Parameter]:
    return {
        name: entry
        for name, entry in network.named_parameters()
        if entry.requires_grad and not name.startswith(stage.frozen)
    }


def stage_optimizer(
    method: Method,
    task: Task,
    local: Local,
    parameters: dict[str, nn.Parameter],
    *,
    capturable: bool = False,
) -> LocalOptimizer:
    training, head = method.training, local.layout.head
    lr = training.lr_at(local.round_index, task.round_count)
    annotated = local.data.known.any(0)
    are_all = len(parameters) == len(trained_parameters(local.model, Stage()))
    return LocalOptimizer(
        parameters, training, lr, head, annotated, capturable=capturable, are_all=are_all
    )


def take_step(
    method: Method,
    local: Local,
    batch: Batch,
    parameters: dict[str, nn.Parameter],
    live: Weights,
    optimizer: LocalOptimizer,
) -> Tensor:
    """Take one optimizer step; return its loss."""
    with _precision(method, local, parameters.values()):
        loss, local.state = method.step_loss(local, batch)
    optimizer.backward(loss)
    gradients, local.state = method.correct_gradients(local, gradients_of(parameters))
    optimizer.step(gradients)
    local.state = method.after_step(local, live)
    return loss.detach()


def observe_batch(method: Method, local: Local, batch: Batch) -> None:
    """Call ``observe``: one step of a stage that does not train."""
    with _precision(method, local, local.model.parameters()):
        local.state = method.observe(local, batch)


@contextmanager
def _precision(method: Method, local: Local, weights: Iterable[Tensor]) -> Iterator[None]:
    """Set the precision of training; ``weights`` are those that get gradients."""
    if method.training.precision == "float32":  # entering a disabled autocast takes time too
        yield
        return
    device = next(local.model.parameters()).device
    with torch.autocast(device.type, torch.bfloat16), cast_parameters(local.model, weights):
        yield


def names_of_draws(task: Task, client: str, round_index: int) -> tuple[int | str, ...]:
    """Return the names that seed a client's randomness in a round."""
    return (task.seed, "client", client, round_index)


def pool_generator(task: Task, local: Local, purpose: str, place: int) -> torch.Generator:
    """Return the generator of a pool's order or augmentation in the current stage."""
    further = (local.stage_number, place) if local.stage_number or place else ()
    names = names_of_draws(task, local.data.name, local.round_index)
    return generator_for(*names, purpose, *further)
