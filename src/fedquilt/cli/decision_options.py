"""Options for thresholds and calibration: for all classes, or for one as CLASS=VALUE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from fedquilt.core.errors import UserError

if TYPE_CHECKING:
    from fedquilt.recipes.recipe import Recipe

PANEL = "Thresholds"

ThresholdRules = Annotated[
    list[str] | None,
    typer.Option(
        "--threshold-rule",
        metavar="[CLASS=]RULE",
        help="How validation chooses thresholds: youden, f1, 'sensitivity>=0.95', "
        "'specificity>=0.9', 'cost 5:1', fixed. Repeat it for single classes.",
        rich_help_panel=PANEL,
    ),
]
GivenThresholds = Annotated[
    list[str] | None,
    typer.Option(
        "--threshold",
        metavar="[CLASS=]PROBABILITY",
        help="A threshold set by hand, e.g. mel=0.2. Repeat it for single classes.",
        rich_help_panel=PANEL,
    ),
]
Calibration = Annotated[
    str | None,
    typer.Option(
        help="Calibrate probabilities on validation: platt, temperature, isotonic or none.",
        rich_help_panel=PANEL,
    ),
]


def split_class(text: str) -> tuple[str | None, str]:
    """Return the class, if one is named, and the value: ``mel=0.2``, ``sensitivity>=0.95``."""
    before, equals, value = text.partition("=")
    if not equals or before.endswith(">"):
        return None, text.strip()
    return before.strip(), value.strip()


def with_decision_options(
    recipe: Recipe,
    thresholds: Sequence[str] | None,
    rules: Sequence[str] | None,
    calibration: str | None,
) -> Recipe:
    """Return the recipe with the given rules in place of its own."""
    if not thresholds and not rules and calibration is None:
        return recipe
    from fedquilt.core.settings import plain, read
    from fedquilt.metrics.decision_rules import PLACE, DecisionRules

    decisions = recipe.evaluation.decisions
    settings = {**plain(decisions, {}), "by_class": dict(decisions.by_class)}
    for text in rules or ():
        name, rule = split_class(text)
        settings |= {"rule": rule} if name is None else {}
        settings["by_class"] |= {} if name is None else {name: rule}
    for name, probability in given_thresholds(thresholds).items():
        settings |= {"rule": f"{probability:g}"} if name is None else {}
        settings["by_class"] |= {} if name is None else {name: probability}
    if calibration is not None:
        settings["calibration"] = calibration
    changed: DecisionRules = read(DecisionRules, settings, PLACE, {})
    return replace(recipe, evaluation=replace(recipe.evaluation, decisions=changed))


def given_thresholds(texts: Sequence[str] | None) -> dict[str | None, float]:
    """Return the thresholds set by hand; None stands for all other classes."""
    found: dict[str | None, float] = {}
    for text in texts or ():
        name, number = split_class(text)
        try:
            probability = float(number)
        except ValueError:
            raise UserError(
                f"--threshold {text!r}: {number!r} is not a number; give a probability, or one "
                "for a class as CLASS=PROBABILITY; for a rule there is --threshold-rule"
            ) from None
        if not 0 <= probability <= 1:
            hint = (
                f"; for {probability:g} % write {probability / 100:g}"
                if 1 < probability <= 100
                else ""
            )
            raise UserError(f"--threshold must be a probability from 0 to 1, found {number}{hint}")
        found[name] = probability
    return found
