"""Aggregation that needs every client's model: RSCFed's consensus, FedNoRo's distances.

The models are sent as Gather parts, so they cannot be summed securely.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.core.payload import Gather, Update
from fedquilt.core.totals import Totals
from fedquilt.core.tree import Weights
from fedquilt.models.network import Layout
from fedquilt.training.averaging import WeightedAveraging, split


def require_sample_weights(method: WeightedAveraging, what: str) -> None:
    """Raise UserError if a setting asks for other weights than images and distance."""
    if method.head_rows != "all" or method.weighting != "samples":
        raise UserError(
            f"{what} weighs whole models by images and distance; leave head_rows and weighting "
            f"as they are, found {method.head_rows!r} and {method.weighting!r}"
        )


def distance_weights(images: Tensor, distances: Tensor, scale: float) -> Tensor:
    """Return shares proportional to images * exp(-scale * distance / images); they sum to 1.

    The largest exponent is shifted to 0, so that the weights cannot all underflow.
    """
    exponents = -scale * distances.to(torch.float64) / images
    weights = images * torch.exp(exponents - exponents.max())
    return weights / weights.sum()


def distance_aware_weights(images: Tensor, distances: Tensor) -> Tensor:
    """FedNoRo: shares proportional to images * exp(-distance / largest distance).

    If all distances are 0, shares are proportional to images.
    """
    largest = distances.max()
    scaled = distances / torch.where(largest > 0, largest, 1.0)
    weights = images.to(torch.float64) * torch.exp(-scaled.to(torch.float64))
    return weights / weights.sum()


def whole_model(
    weights: Weights, layout: Layout, images: int, *, is_clean: bool | None = None
) -> Update:
    """Return a client's model and number of images; if given, also whether it is clean."""
    gathered = {part: Gather(leaves) for part, leaves in split(weights, layout).items()}
    clean = {} if is_clean is None else {"is_clean": Gather(torch.tensor(float(is_clean)))}
    return {**gathered, "images": Gather(torch.tensor(float(images)), is_weight=True), **clean}


def clean_clients(totals: Totals) -> Tensor:
    """(clients,) bool, in the order of client names: whether all labels are annotated."""
    found = totals.each("is_clean")
    return torch.stack([found[name] for name in sorted(found)]) > 0


def whole_models(totals: Totals) -> tuple[list[Weights], Tensor]:
    """Return the clients' models and numbers of images, in the order of client names."""
    parts = [part for part in ("body", "head", "buffers") if part in totals.expected]
    clients = sorted(totals.cohort)  # not in the order of arrival
    models = [
        {key: leaf for part in parts for key, leaf in totals.each(part)[name].items()}
        for name in clients
    ]
    return models, torch.stack([totals.each("images")[name] for name in clients]).double()


def mixed_models(
    weights: Weights, totals: Totals, changes: Sequence[Weights], shares: Tensor
) -> tuple[Weights, Weights]:
    """Return the weighted mean change of the trainable weights, and the new buffers."""
    change = combined(changes, shares)
    held = totals.expected["buffers"].value if "buffers" in totals.expected else {}
    buffers = {name: weights[name] + change.pop(name) for name in held}
    return change, buffers


def distance_aware_mean(weights: Weights, totals: Totals) -> tuple[Weights, Weights]:
    """FedNoRo: like :func:`mixed_models`, where clients far from all clean ones count less."""
    changes, images = whole_models(totals)
    distances = distances_to_nearest(inner_products(changes), clean_clients(totals))
    return mixed_models(weights, totals, changes, distance_aware_weights(images, distances))


def inner_products(changes: Sequence[Weights]) -> Tensor:
    """Inner products of the clients' changes, (tensors, clients, clients) in float64.

    Distances within any group follow from them, without another pass over the weights.
    """
    products = []
    for name in changes[0]:
        rows = torch.stack([change[name].double().flatten() for change in changes])
        products.append(rows @ rows.T)
    return torch.stack(products)


def consensus(products: Tensor, members: Tensor, images: Tensor, scale: float) -> Tensor:
    """RSCFed: every client's share in a group's mean; a client far from the plain mean counts less.

    A distance is the sum over tensors of the norm of the difference. Clients outside the group have
    share 0.
    """
    own = products[:, members][:, :, members]
    squares = own.diagonal(dim1=1, dim2=2) - 2 * own.mean(2) + own.mean((1, 2))[:, None]
    distances = squares.clamp(min=0).sqrt().sum(0)
    shares = torch.zeros(products.shape[1], dtype=torch.float64)
    shares[members] = distance_weights(images[members], distances, scale)
    return shares


def group_consensus(
    changes: Sequence[Weights],
    images: Tensor,
    groups: tuple[int, int],
    scale: float,
    draws: torch.Generator,
) -> Tensor:
    """RSCFed: every client's share, the mean of its shares in random groups of clients.

    ``groups`` are their number and size. The clients are in the order of their names, so that draws
    do not depend on the order of arrival.
    """
    products, (count, size) = inner_products(changes), groups
    members = [torch.randperm(len(changes), generator=draws)[:size] for _ in range(count)]
    return torch.stack([consensus(products, each, images, scale) for each in members]).mean(0)


def distances_to_nearest(products: Tensor, chosen: Tensor) -> Tensor:
    """Distance of each client to the nearest ``chosen`` one, (clients,) bool; 0 if none is chosen.

    A distance is the sum over tensors of the norm of the difference.
    """
    squares = products.diagonal(dim1=1, dim2=2)
    gaps = squares[:, :, None] + squares[:, None, :] - 2 * products
    distances = gaps.clamp(min=0).sqrt().sum(0)
    nearest = torch.where(chosen, distances, torch.inf).amin(1)
    return torch.where(chosen | ~chosen.any(), 0.0, nearest)


def combined(changes: Sequence[Weights], shares: Tensor) -> Weights:
    """The weighted sum of the changes, computed in float64."""
    total: Weights = {}
    for name, first in changes[0].items():
        sums = torch.zeros_like(first, dtype=torch.float64)
        for share, change in zip(shares.tolist(), changes):
            sums.add_(change[name], alpha=share)
        total[name] = sums.to(first.dtype)
    return total
