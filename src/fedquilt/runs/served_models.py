"""Which models a run serves: those of the best validated round, or of the last one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedquilt.core.tree import Weights
from fedquilt.core.wording import counted
from fedquilt.data.validation import Validation
from fedquilt.metrics.round_choice import RoundChoice, score_of
from fedquilt.recipes.recipe import Recipe
from fedquilt.runs.assessment import GLOBAL
from fedquilt.runs.checkpoint import Checkpoints

Choices = Mapping[str, RoundChoice]  # of the global model, or of each client's

METRICS = {"site_auc": "largest AUC within sites", "loss": "smallest cross-entropy"}
NOT_VALIDATED = "the last round: the run has no validation part"
UNDEFINED = (
    "the last round: no client's validation images have both a positive and a negative of a class, "
    "so no round could be judged"
)


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


@dataclass(frozen=True)
class ServedModels:
    """The served models, the rounds they are of, and those of the last round where they differ."""

    models: Mapping[str, Weights]
    rounds: Mapping[str, int]
    last: Mapping[str, Weights]  # empty if the served models are those of the last round
    facts: Mapping[str, Any]  # "served" of result.json and model.json


def choose_models(
    last: Mapping[str, Weights],
    checkpoints: Checkpoints,
    choices: Choices,
    settings: Validation,
    *,
    trained: int,
    planned: int,
    is_validated: bool,
) -> ServedModels:
    """Return the models to serve.

    Args:
        last: the models after the last round, by name.
        checkpoints: where the best models are kept.
        choices: the choice of each model that could be judged.
        settings: of the recipe.
        trained: the number of rounds trained.
        planned: the number of rounds of the recipe.
        is_validated: whether the run has a validation part.
    """
    models, rounds = dict(last), dict.fromkeys(last, trained)
    choices = {name: each for name, each in choices.items() if each.best is not None}
    for name in last:
        is_last = name not in choices or choices[name].best == trained
        kept = None if is_last else checkpoints.best(name)
        if kept is not None:
            rounds[name], models[name] = kept
    has_choice = any(name in choices for name in last)
    why = UNDEFINED if is_validated else NOT_VALIDATED
    if has_choice:
        why = _why(choices, rounds, settings, trained)
    is_over = has_choice and all(each.is_over(settings) for each in choices.values())
    if trained < planned:
        why += _why_short(settings, trained, planned, is_over=is_over)
    facts: dict[str, Any] = {
        "model": "best" if has_choice else "last",
        "round": rounds.get(GLOBAL),
        "trained": trained,
        "planned": planned,
        "why": why,
    }
    if has_choice:
        facts |= {"metric": settings.metric, "stopped_early": is_over and trained < planned}
    if has_choice and GLOBAL in choices:
        facts["value"] = _value(choices[GLOBAL], settings)
    if GLOBAL not in last:
        facts["rounds"] = rounds
    is_other = any(rounds[name] != trained for name in last)
    return ServedModels(models, rounds, dict(last) if is_other else {}, facts)


def _value(choice: RoundChoice, settings: Validation) -> float:
    return -choice.score if settings.metric == "loss" else choice.score


def _why(
    choices: Choices,
    rounds: Mapping[str, int],
    settings: Validation,
    trained: int,
) -> str:
    what = METRICS[settings.metric]
    if GLOBAL in rounds:
        value = _value(choices[GLOBAL], settings)
        place = f"round {rounds[GLOBAL]} of {trained}"
        return f"{place}, which has the {what} on the validation part ({value:.4f})"
    return (
        f"every client's model of its own round with the {what} on its validation images "
        f"({_span(sorted(rounds.values()))} of {trained})"
    )


def _why_short(settings: Validation, trained: int, planned: int, *, is_over: bool) -> str:
    if is_over:
        return (
            f"; training stopped before {counted(planned, 'round')}: no gain of "
            f"{settings.min_gain:g} after {settings.patience} further validations"
        )
    return f"; the run was stopped after round {trained} of {planned}"


def _span(rounds: Sequence[int]) -> str:
    first, last = rounds[0], rounds[-1]
    return f"round {first}" if first == last else f"rounds {first} to {last}"
