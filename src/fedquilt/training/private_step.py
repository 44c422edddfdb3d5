"""DP-SGD (Abadi et al., CCS 2016): clipped gradients of single images or patients, and noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from fedquilt.core.gaussian_accountant import GaussianRelease
from fedquilt.core.noise import NoiseSource, with_noise
from fedquilt.core.tree import Weights
from fedquilt.data.batches import Batch, make_batch
from fedquilt.data.client_data import ClientData
from fedquilt.models.network import Network
from fedquilt.training.local_optimizer import LocalOptimizer, gradients_of
from fedquilt.training.method import Local, Method
from fedquilt.training.noise_plan import training_noise
from fedquilt.training.task import Task

CHUNK = 16  # units whose gradients are in memory at a time


def private_gradients(
    method: Method,
    task: Task,
    local: Local,
    parameters: Mapping[str, nn.Parameter],
    source: NoiseSource,
    steps: int,
) -> Iterator[Weights]:
    """Yield each step's gradient: the sum over a Poisson batch, with noise, by its expected size.

    Which units are drawn, how images are augmented, and the noise come from ``source`` alone.
    """
    noise = training_noise(method, task, len(local.data))
    augmentation = torch.Generator().manual_seed(int(source.uniform(1) * 2.0**53))
    units = units_of(local.data, task)
    expected = noise.sampling_rate * len(local.data)
    views = method.views(local.round_index)
    for _ in range(steps):
        drawn = (source.uniform(int(units.max()) + 1) < noise.sampling_rate).nonzero().flatten()
        total = {name: torch.zeros_like(weight) for name, weight in parameters.items()}
        for some in drawn.split(CHUNK) if len(drawn) else ():
            rows = torch.isin(units, some).nonzero().flatten()
            device = local.data.known.device
            batch = make_batch(local.data, rows, views, task.preprocessing, augmentation, device)
            for name, more in clipped_sum(
                method, local, parameters, batch, units[rows], task.privacy.clip
            ).items():
                total[name] += more
        yield noised_mean(total, task.privacy.clip, noise, source, expected)


def take_private_step(
    method: Method,
    local: Local,
    gradients: Weights,
    parameters: dict[str, nn.Parameter],
    live: Weights,
    optimizer: LocalOptimizer,
) -> None:
    """Take one optimizer step; a penalty that sees no data is added after the noise."""
    penalty = method.penalty(local)
    if penalty is not None:
        optimizer.backward(penalty)
        pull = gradients_of(parameters)
        gradients = {name: gradient + pull[name] for name, gradient in gradients.items()}
    gradients, local.state = method.correct_gradients(local, gradients)
    optimizer.step(gradients)
    local.state = method.after_step(local, live)


def units_of(data: ClientData, task: Task) -> Tensor:
    """(n,) the number of the unit that each image belongs to."""
    if task.privacy.unit == "patient":
        assert data.patients is not None
        return data.patients
    return torch.arange(len(data))


def clipped_sum(
    method: Method,
    local: Local,
    parameters: Mapping[str, nn.Parameter],
    batch: Batch,
    units: Tensor,
    clip: float,
) -> Weights:
    """Sum the gradients of each unit's images, clip them to a norm, and sum over units."""
    gradients = image_gradients(method, local, parameters, batch)
    _, places = units.unique(return_inverse=True)
    places = places.to(batch.labels.device)
    count = int(places.max()) + 1
    if count < len(places):
        gradients = {
            name: leaf.new_zeros(count, *leaf.shape[1:]).index_add_(0, places, leaf)
            for name, leaf in gradients.items()
        }
    squares = torch.stack([leaf.flatten(1).square().sum(1) for leaf in gradients.values()])
    factor = (clip / squares.sum(0).sqrt().clamp(min=1e-12)).clamp(max=1.0)
    return {name: torch.tensordot(factor, leaf, 1) for name, leaf in gradients.items()}


def image_gradients(
    method: Method, local: Local, parameters: Mapping[str, nn.Parameter], batch: Batch
) -> Weights:
    """The gradient of every image's own loss, (B, ...) by name."""
    network = local.model

    def loss_of(
        weights: Weights, views: tuple[Tensor, ...], labels: Tensor, known: Tensor
    ) -> Tensor:
        def model(images: Tensor, *further: Tensor) -> Any:
            return functional_call(network, weights, (images, *further))

        one = Batch(
            views=tuple(view[None] for view in views),
            labels=labels[None],
            known=known[None],
            rows=torch.zeros(1, dtype=torch.int64),
        )
        return method.image_loss(replace(local, model=cast(Network, model)), one)

    weights = {name: parameter.detach() for name, parameter in parameters.items()}
    each: Callable[..., Weights] = vmap(
        grad(loss_of), in_dims=(None, 0, 0, 0), randomness="different"
    )
    return each(weights, batch.views, batch.labels, batch.known)


def noised_mean(
    total: Weights, clip: float, noise: GaussianRelease, source: NoiseSource, expected: float
) -> Weights:
    """Add noise to a sum of clipped gradients, and divide by the expected number of images."""
    flat = torch.cat([leaf.flatten() for leaf in total.values()])
    left = (with_noise(flat, clip, noise.noise_multiplier, source) / expected).to(flat.dtype)
    pieces = left.split([leaf.numel() for leaf in total.values()])
    return {name: piece.reshape(total[name].shape) for name, piece in zip(total, pieces)}
