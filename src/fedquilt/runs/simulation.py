"""Simulation: all clients of a recipe on one machine, with labels that methods must not see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from fedquilt.core.errors import UserError
from fedquilt.core.own_code import is_own
from fedquilt.core.wording import counted
from fedquilt.data.allocation import Allocation, Holding, allocate
from fedquilt.data.client_data import ClientData
from fedquilt.data.dataset import MultiLabelDataset
from fedquilt.data.source import Splits
from fedquilt.data.validation import set_aside
from fedquilt.models.own_backbone import check_features
from fedquilt.recipes.recipe import Recipe
from fedquilt.training.noise_plan import limited_to_units
from fedquilt.training.private_training import check_private_training
from fedquilt.training.task import Task

POOLED = "pooled"


@dataclass(frozen=True)
class Simulation:
    """The data, the clients and the task they share."""

    splits: Splits
    allocation: Allocation  # as in the recipe, even if the method is a bound that sees more
    clients: Mapping[str, ClientData]  # as the method sees them
    task: Task
    validation: Mapping[str, ClientData]  # the same clients' images for validation, if any


def simulate(
    recipe: Recipe, cache: Path, splits: Splits | None = None, *, use_marked: bool = True
) -> Simulation:
    """Load the data and allocate it to clients.

    Args:
        recipe: what to train, and on what.
        cache: the folder for decoded images.
        splits: the data, if it is already loaded.
        use_marked: False trains on images that a split column marks for validation, as runs did
            before there was a validation part.
    """
    splits = recipe.data.load(cache) if splits is None else splits
    seed = recipe.seed if recipe.allocation_seed is None else recipe.allocation_seed
    allocation = allocate(splits.train, recipe.partition, recipe.annotation, seed)
    marked = splits.is_validation if use_marked else None
    allocation = set_aside(allocation, splits.train, marked, recipe.validation)
    holdings = _visible_holdings(recipe, allocation, splits.train)
    # In a deployment only the sites know the secret; here the server's code never reads it.
    secret = f"fedquilt simulation {recipe.seed}".encode()
    clients = {
        each.name: limited_to_units(
            ClientData.of(splits.train, each.for_training(), secret), recipe.privacy
        )
        for each in holdings
    }
    validation = {}
    if any(each.has_validation for each in holdings):
        validation = {
            each.name: ClientData.of(splits.train, each.for_validation(), secret)
            for each in holdings
        }
    _, *shape = splits.train.images.shape
    task = recipe.task(splits.train.classes, clients, (shape[0], shape[1], shape[2]))
    if recipe.privacy.training:
        check_private_training(recipe.method, task)
    if is_own(task.model.backbone_name):
        check_features(task.model.backbone_name, task.build_network().backbone, task.image_shape)
    return Simulation(splits, allocation, clients, task, validation)


def _visible_holdings(
    recipe: Recipe, allocation: Allocation, train: MultiLabelDataset
) -> tuple[Holding, ...]:
    holdings = allocation.holdings
    if recipe.method.needs_complete_labels:
        holdings = tuple(_fully_labelled(holding, train) for holding in holdings)
    if recipe.method.needs_pooled_data:
        holdings = (_pooled(holdings, train),)
    return holdings


def _pooled(holdings: tuple[Holding, ...], train: MultiLabelDataset) -> Holding:
    """Return one fully annotated client; an image that any client validates on is not trained."""
    indices = torch.cat([holding.indices for holding in holdings]).unique()
    validation = None
    if any(holding.has_validation for holding in holdings):
        chosen = torch.cat([holding.for_validation().indices for holding in holdings])
        validation = torch.isin(indices, chosen)
    return _fully_labelled(Holding(POOLED, indices, train.known[indices], validation), train)


def _fully_labelled(holding: Holding, train: MultiLabelDataset) -> Holding:
    known = train.known[holding.indices]
    if not bool(known.all()):
        missing = int((~known).sum())
        raise UserError(
            f"this method needs complete labels, but {missing} of "
            f"{counted(known.numel(), 'label')} at "
            f"{holding.name!r} are missing in the data; use it with fully annotated data, whose "
            "labels a recipe hides"
        )
    return replace(holding, known=known)
