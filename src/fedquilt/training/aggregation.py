"""How clients' weights travel and are averaged: body, head rows and buffers, each in its way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from fedquilt.core.payload import Gather, Mean, Update
from fedquilt.core.totals import Totals
from fedquilt.core.tree import Weights, add, sub, zeros_like
from fedquilt.data.client_data import ClientData
from fedquilt.models.network import Layout

Weighting = Literal["samples", "uniform"]
HeadRows = Literal["all", "annotators", "annotated", "positives"]
NEGLIGIBLE = 1e-100  # beside any weight to speak of it changes no bit; alone it still makes a mean
SPARE_ROWS = "spare_rows"  # a part: the head under other weights, for rows nobody had weight for


def head_row_weights(rule: HeadRows, weight: float, data: ClientData) -> Tensor:
    """How much a client's head row counts, per class.

    ``all``: as the body, whether or not the client annotates the class. ``annotators``: as the
    body, but only where it does. ``annotated``: its annotated images of the class, so only
    annotators count. ``positives``: its annotated positives.
    """
    if rule == "annotators":
        return data.known.any(0).to(torch.float64) * weight
    if rule == "annotated":
        return data.annotated_counts().to(torch.float64)
    if rule == "positives":
        return data.positive_counts().to(torch.float64)
    return torch.full((data.known.shape[1],), weight, dtype=torch.float64)


def or_negligible(weight: float, otherwise: float) -> float:
    """``weight``; for a client without any, ``otherwise`` so faintly that only its likes see it.

    A cohort in which nobody has weight is then averaged by ``otherwise``, and nobody has to know.
    """
    return weight if weight > 0 else NEGLIGIBLE * otherwise


def split(weights: Weights, layout: Layout) -> dict[str, Weights]:
    """The weights as the parts that are sent; a network without buffers sends none."""
    names = {"body": layout.body, "head": layout.head, "buffers": layout.buffers}
    return {part: {name: weights[name] for name in group} for part, group in names.items() if group}


def weight_parts(
    change: Weights, layout: Layout, weight: float, head_weights: float | Tensor
) -> Update:
    parts = split(change, layout)
    return {
        part: Mean(value, head_weights if part == "head" else weight)
        for part, value in parts.items()
    }


def by_row_counts(parts: Update, counts: Tensor) -> Update:
    """Head rows count by ``counts``, (C,); where nobody counted any, as they would have before."""
    if "head" not in parts:
        return parts
    return {**parts, "head": Mean(parts["head"].value, counts), SPARE_ROWS: parts["head"]}


def change_of(weights: Weights, received: Weights) -> Weights:
    change: Weights = sub(weights, received)
    return change


def mean_change(totals: Totals) -> Weights:
    """The mean change of all trainable weights.

    A head row nobody had weight for changes as in the spare rows, if they are sent, or not at all.
    """
    change: Weights = totals.mean("body") if "body" in totals.expected else {}
    if "head" in totals.expected:
        otherwise = zeros_like(totals.expected["head"].value)
        if SPARE_ROWS in totals.expected:
            otherwise = totals.mean(SPARE_ROWS, otherwise=otherwise)
        change |= totals.mean("head", otherwise=otherwise)
    return change


def distance_weights(images: Tensor, distances: Tensor, scale: float) -> Tensor:
    """Shares by images times exp(-scale * distance / images); they sum to 1.

    The largest exponent is moved to 0, or all of them could be too small for a number.
    """
    exponents = -scale * distances.to(torch.float64) / images
    weights = images * torch.exp(exponents - exponents.max())
    return weights / weights.sum()


def distance_aware_weights(images: Tensor, distances: Tensor) -> Tensor:
    """FedNoRo's shares: images times exp(-distance / largest distance); without any, by images."""
    largest = distances.max()
    scaled = distances / torch.where(largest > 0, largest, 1.0)
    weights = images.to(torch.float64) * torch.exp(-scaled.to(torch.float64))
    return weights / weights.sum()


def whole_model(weights: Weights, layout: Layout, images: int) -> Update:
    """A client's model, for a server that has to see each one alone, and its images."""
    gathered = {part: Gather(leaves) for part, leaves in split(weights, layout).items()}
    return {**gathered, "images": Gather(torch.tensor(float(images)), is_weight=True)}


def whole_models(totals: Totals) -> tuple[list[Weights], Tensor]:
    """What each client sent by :func:`whole_model`, by clients' names: models and images."""
    parts = [part for part in ("body", "head", "buffers") if part in totals.expected]
    clients = sorted(totals.cohort)  # whoever came first
    models = [
        {key: leaf for part in parts for key, leaf in totals.each(part)[name].items()}
        for name in clients
    ]
    return models, torch.stack([totals.each("images")[name] for name in clients]).double()


def mixed_models(
    weights: Weights, totals: Totals, changes: Sequence[Weights], shares: Tensor
) -> tuple[Weights, Weights]:
    """The shares' mean change of all trainable weights, and the buffers after it."""
    change = combined(changes, shares)
    held = totals.expected["buffers"].value if "buffers" in totals.expected else {}
    buffers = {name: weights[name] + change.pop(name) for name in held}
    return change, buffers


def inner_products(changes: Sequence[Weights]) -> Tensor:
    """Of every two clients' changes, tensor by tensor, (tensors, clients, clients) in float64.

    Distances within any group follow from them, without another pass over the weights.
    """
    products = []
    for name in changes[0]:
        rows = torch.stack([change[name].double().flatten() for change in changes])
        products.append(rows @ rows.T)
    return torch.stack(products)


def consensus(products: Tensor, members: Tensor, images: Tensor, scale: float) -> Tensor:
    """RSCFed's shares of all clients in a group's mean: one far from its plain mean counts less.

    A distance is the sum over tensors of the lengths of differences.
    """
    own = products[:, members][:, :, members]
    squares = own.diagonal(dim1=1, dim2=2) - 2 * own.mean(2) + own.mean((1, 2))[:, None]
    distances = squares.clamp(min=0).sqrt().sum(0)
    shares = torch.zeros(products.shape[1], dtype=torch.float64)
    shares[members] = distance_weights(images[members], distances, scale)
    return shares


def distances_to_nearest(products: Tensor, chosen: Tensor) -> Tensor:
    """Each client's distance to the nearest of those ``chosen``, (clients,) bool; 0 if none is.

    A distance is the sum over tensors of the lengths of differences.
    """
    squares = products.diagonal(dim1=1, dim2=2)
    gaps = squares[:, :, None] + squares[:, None, :] - 2 * products
    distances = gaps.clamp(min=0).sqrt().sum(0)
    nearest = torch.where(chosen, distances, torch.inf).amin(1)
    return torch.where(chosen | ~chosen.any(), 0.0, nearest)


def combined(changes: Sequence[Weights], shares: Tensor) -> Weights:
    """The sum of shares of changes, added up in float64."""
    total: Weights = {}
    for name, first in changes[0].items():
        sums = torch.zeros_like(first, dtype=torch.float64)
        for share, change in zip(shares.tolist(), changes):
            sums.add_(change[name], alpha=share)
        total[name] = sums.to(first.dtype)
    return total


def moved_buffers(weights: Weights, totals: Totals) -> Weights:
    """The buffers after a round: averages as they are, without server momentum."""
    if "buffers" not in totals.expected:
        return {}
    change = totals.mean("buffers")
    buffers: Weights = add({name: weights[name] for name in change}, change)
    return buffers
