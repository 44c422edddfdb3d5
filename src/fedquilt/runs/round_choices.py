"""The choice of each model's round, from the records of a run's history."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fedquilt.metrics.round_choice import RoundChoice, score_of
from fedquilt.recipes.recipe import Recipe
from fedquilt.runs.assessment import GLOBAL

Choices = Mapping[str, RoundChoice]  # of the global model, or of each client's


def choices_of(records: Iterable[Mapping[str, Any]], recipe: Recipe) -> Choices:
    """Return the choices after these records."""
    choices: Choices = {}
    for record in records:
        choices = choices_after(choices, record, recipe)
    return choices


def choices_after(choices: Choices, record: Mapping[str, Any], recipe: Recipe) -> Choices:
    """Return the choices after one more record, which may hold no validation."""
    found, settings = record.get("validation"), recipe.validation
    if found is None:
        return choices
    by_model = found.get("by_client", {GLOBAL: found})
    return dict(choices) | {
        name: choices.get(name, RoundChoice()).after(
            record["round"],
            score_of(each, settings.metric),
            settings,
            warmup=getattr(recipe.method, "warmup_rounds", 0),
            sites=tuple(found.get("sites", ())),
        )
        for name, each in by_model.items()
    }


def is_over(choices: Choices, recipe: Recipe) -> bool:
    """Whether training stops: every model's patience has run out."""
    return bool(choices) and all(each.is_over(recipe.validation) for each in choices.values())
