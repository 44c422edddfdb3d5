"""SweepPlan: what a study file asks for: methods, settings to try, seeds, and the recipe around."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from fedquilt.core.errors import UserError
from fedquilt.core.settings import read
from fedquilt.recipes.recipe import Recipe, read_settings, recipe_from, with_overrides

TABLE = "sweep"  # the study file's table; the rest of the file is a recipe
Value: TypeAlias = bool | int | float | str
Settings: TypeAlias = dict[str, Value]  # one combination: place in the recipe -> value


@dataclass(frozen=True, kw_only=True)
class Span:
    """A range of numbers, from which Optuna draws; whole numbers if both ends are."""

    low: int | float
    high: int | float
    log: bool = False

    def __post_init__(self) -> None:
        if not self.low < self.high or (self.log and self.low <= 0):
            raise UserError(
                f"a range needs low below high, and above 0 with log; found {self.low} to "
                f"{self.high}"
            )


Choice: TypeAlias = tuple[Value, ...] | Span


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """The table ``[sweep]`` of a study file."""

    methods: tuple[str, ...] = ()  # default: the method of the recipe
    settings: Mapping[str, Choice] = field(default_factory=dict)  # tried for every method
    own: Mapping[str, Mapping[str, Choice]] = field(default_factory=dict)  # and for one method
    search: Literal["grid", "optuna"] = "grid"
    trials: int | None = None  # of every method; for a grid by default those of the smallest one
    tuning_seeds: tuple[int, ...] = (100,)  # of the runs that choose the settings
    seeds: tuple[int, ...] = (0, 1, 2)  # of the runs that are compared
    search_seed: int = 0

    def __post_init__(self) -> None:
        for name in ("tuning_seeds", "seeds"):
            given = getattr(self, name)
            if not given or len(set(given)) < len(given):
                raise UserError(f"sweep.{name} needs distinct seeds, found {list(given)}")
        if self.trials is not None and self.trials < 1:
            raise UserError(f"sweep.trials must be at least 1, found {self.trials}")
        if self.search == "optuna" and self.trials is None:
            raise UserError("sweep.search = 'optuna' needs sweep.trials, the number per method")
        for place, choice in self._all_choices():
            if not isinstance(choice, Span) and (not choice or len(set(choice)) < len(choice)):
                raise UserError(f"sweep: {place!r} needs distinct values to try, found {choice}")
        for name in self.own:
            if name not in self.methods:
                raise UserError(
                    f"sweep.own.{name}: the sweep has no such method; sweep.methods are "
                    f"{', '.join(self.methods)}"
                )

    def _all_choices(self) -> Iterator[tuple[str, Choice]]:
        for choices in (self.settings, *self.own.values()):
            yield from choices.items()


@dataclass(frozen=True)
class SweepPlan:
    """A study file, read."""

    name: str
    base: Mapping[str, Any]  # the recipe's settings, without the method's name
    sweep: Sweep

    @property
    def methods(self) -> tuple[str, ...]:
        return self.sweep.methods

    def choices(self, method: str) -> dict[str, Choice]:
        """Return what is tried for a method, by place in the recipe."""
        return dict(self.sweep.settings) | dict(self.sweep.own.get(method, {}))

    def recipe(self, method: str, settings: Mapping[str, Value], seed: int) -> Recipe:
        given = dict(self.base) | {
            "method": {**self.base.get("method", {}), "name": method},
            "seed": seed,
        }
        for place, value in settings.items():
            given = _placed(given, place, value)
        return recipe_from(given)

    def key(self, method: str) -> str:
        """Return a hash of what a trial's score depends on, so that no other study is mixed in."""
        depends = {
            "base": self.base,
            "choices": {place: repr(choice) for place, choice in self.choices(method).items()},
            "seeds": self.sweep.tuning_seeds,
        }
        return hashlib.sha256(json.dumps(depends, sort_keys=True).encode()).hexdigest()[:8]


def read_sweep(path: Path, overrides: Iterable[str] = ()) -> SweepPlan:
    """Read a study file: a recipe with a table ``[sweep]``; overrides are as for recipes."""
    settings = with_overrides(read_settings(path), overrides)
    table = settings.pop(TABLE, None)
    if table is None:
        raise UserError(
            f"{path} has no table [sweep], which says what to try; for one run use: fedquilt run"
        )
    method = dict(settings.get("method", {}))
    named = method.pop("name", None)
    if isinstance(table, Mapping) and "methods" not in table and named is not None:
        table = {**table, "methods": [named]}
    sweep: Sweep = read(Sweep, table, "sweep", {})
    if not sweep.methods or len(set(sweep.methods)) < len(sweep.methods):
        raise UserError(f"sweep.methods needs distinct methods, found {list(sweep.methods)}")
    if named is not None and named not in sweep.methods:
        raise UserError(f"the recipe's method {named!r} is not among sweep.methods")
    return SweepPlan(path.stem, {**settings, "method": method}, sweep)


def _placed(settings: Mapping[str, Any], place: str, value: Value) -> dict[str, Any]:
    first, _, rest = place.partition(".")
    if not rest:
        return {**settings, first: value}
    inner = settings.get(first, {})
    if not isinstance(inner, Mapping):
        raise UserError(f"sweep.settings {place!r}: {first!r} is not a table of settings")
    return {**settings, first: _placed(inner, rest, value)}
