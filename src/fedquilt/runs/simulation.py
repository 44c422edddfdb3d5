"""Simulation: all clients of a recipe on one machine, with labels that methods must not see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from fedquilt.core.errors import UserError
from fedquilt.data.allocation import Allocation, Holding, allocate
from fedquilt.data.augmentation.views import Preprocessing
from fedquilt.data.client_data import ClientData
from fedquilt.data.dataset import MultiLabelDataset
from fedquilt.data.source import Splits
from fedquilt.recipes.recipe import Recipe
from fedquilt.training.task import Task

POOLED = "pooled"


@dataclass(frozen=True)
class Simulation:
    """The data, the clients and the task they share."""

    splits: Splits
    allocation: Allocation  # as in the recipe, even if the method is a bound that sees more
    clients: Mapping[str, ClientData]  # as the method sees them
    task: Task


def simulate(recipe: Recipe, cache: Path, splits: Splits | None = None) -> Simulation:
    """Load the data and allocate it to clients; ``splits`` is the data if already loaded."""
    splits = recipe.data.load(cache) if splits is None else splits
    seed = recipe.seed if recipe.allocation_seed is None else recipe.allocation_seed
    allocation = allocate(splits.train, recipe.partition, recipe.annotation, seed)
    holdings = _visible_holdings(recipe, allocation, splits.train)
    # In a deployment only the sites know the secret; here the server's code never reads it.
    secret = f"fedquilt simulation {recipe.seed}".encode()
    clients = {holding.name: ClientData.of(splits.train, holding, secret) for holding in holdings}
    task = Task(
        classes=splits.train.classes,
        clients=tuple(clients),
        image_shape=tuple(splits.train.images.shape[1:]),  # type: ignore[arg-type]
        model=recipe.method.model_spec(recipe.model),
        preprocessing=Preprocessing(
            views=recipe.views, mean=recipe.model.mean, std=recipe.model.std
        ),
        round_count=recipe.rounds,
        seed=recipe.seed,
    )
    return Simulation(splits, allocation, clients, task)


def _visible_holdings(
    recipe: Recipe, allocation: Allocation, train: MultiLabelDataset
) -> tuple[Holding, ...]:
    holdings = allocation.holdings
    if recipe.method.needs_complete_labels:
        holdings = tuple(_fully_labelled(holding, train) for holding in holdings)
    if recipe.method.needs_pooled_data:
        indices = torch.cat([holding.indices for holding in holdings]).unique()
        holdings = (_fully_labelled(Holding(POOLED, indices, train.known[indices]), train),)
    return holdings


def _fully_labelled(holding: Holding, train: MultiLabelDataset) -> Holding:
    known = train.known[holding.indices]
    if not bool(known.all()):
        missing = int((~known).sum())
        raise UserError(
            f"this method needs complete labels, but {missing} of {known.numel()} labels at "
            f"{holding.name!r} are missing in the data; use it with fully annotated data, whose "
            "labels a recipe hides"
        )
    return Holding(holding.name, holding.indices, known)
