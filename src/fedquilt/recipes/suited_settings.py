"""Settings of a method that suit the size of a user's own data, derived before training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from fedquilt.data.allocation import allocate
from fedquilt.data.problems import Problems
from fedquilt.data.sources.folder.load import Folder, read_folder
from fedquilt.data.splits import TRAIN
from fedquilt.recipes.recipe import Recipe
from fedquilt.training.activity import RunSize


@dataclass(frozen=True)
class SuitedSettings:
    """Settings of the method that differ from its defaults, and the size that they suit."""

    settings: Mapping[str, Any]
    defaults: Mapping[str, Any]
    size: RunSize | None = None

    def sentence(self, method: str) -> str:
        """What was derived from what, with the defaults in parentheses."""
        assert self.size is not None
        chosen = ", ".join(
            f"{name} = {_toml(value)} ({_toml(self.defaults[name])})"
            for name, value in self.settings.items()
        )
        return (
            f"for {self.size.sentence()}, {method} uses {chosen}; in parentheses the published "
            "defaults, for more data or rounds; choose with --set method.NAME=VALUE"
        )


@dataclass(frozen=True)
class _TrainLabels:
    """The labels of the train split, without images."""

    labels: Tensor
    known: Tensor
    classes: tuple[str, ...]
    groups: tuple[str, ...] | None
    sites: tuple[str, ...] | None


def suited_settings(recipe: Recipe, given: Mapping[str, Any]) -> SuitedSettings:
    """Ask the recipe's method for settings that suit its data, a folder; ``given`` are kept.

    Raise UserError, as loading it would, for a folder with problems.
    """
    if not isinstance(recipe.data, Folder):
        return SuitedSettings({}, {})
    train = _train_labels(recipe.data)
    seed = recipe.seed if recipe.allocation_seed is None else recipe.allocation_seed
    allocation = allocate(train, recipe.partition, recipe.annotation, seed)
    size = RunSize.of(allocation.holdings, recipe.rounds)
    variant = type(recipe.method).variants.get(given.get("variant", ""), {})
    suited = {
        name: value
        for name, value in recipe.method.suited_to(size).items()
        if name not in {*given, *variant} and value != getattr(recipe.method, name)
    }
    return SuitedSettings(suited, {name: getattr(recipe.method, name) for name in suited}, size)


def _train_labels(source: Folder) -> _TrainLabels:
    problems = Problems()
    content = read_folder(source, problems)
    if problems or content is None or content.splits is None:
        raise problems.error(f"the data in {source.folder}")
    table, rows = content.table, np.flatnonzero(content.splits == TRAIN).tolist()
    return _TrainLabels(
        labels=table.labels[rows],
        known=table.known[rows],
        classes=table.classes,
        groups=None if table.groups is None else tuple(table.groups[row] for row in rows),
        sites=None if table.sites is None else tuple(table.sites[row] for row in rows),
    )


def _toml(value: Any) -> str:
    return repr(value) if isinstance(value, str) else f"{value:g}"
