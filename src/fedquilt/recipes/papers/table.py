"""PublishedTable: a table of a paper as a value, whose every cell and seed is a recipe."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fedquilt.core.errors import UserError, nearest
from fedquilt.recipes.papers.criterion import Criterion
from fedquilt.recipes.papers.published_numbers import AVERAGE, Reference

if TYPE_CHECKING:
    from fedquilt.recipes.recipe import Recipe

Settings = Mapping[str, Any]  # of a recipe, as they could stand in a file
FOLDER = "{folder}"  # stands in settings for the folder of the user's files


@dataclass(frozen=True, kw_only=True)
class Row:
    """A method with its settings.

    A bound sees more labels or images than rivals do; a variant runs only if it is asked for by
    its name. Neither is ranked.
    """

    name: str  # on the command line and in the names of folders
    label: str  # as the paper prints it
    settings: Settings
    kind: Literal["rival", "bound", "variant"] = "rival"


def method_row(name: str, label: str, method: str, *, kind: Any = "rival", **settings: Any) -> Row:
    """A row by the name of its method and that method's settings.

    ``kind`` is untyped because a type checker would take any ``**settings`` to hold it.
    """
    return Row(name=name, label=label, settings={"method": {"name": method, **settings}}, kind=kind)


@dataclass(frozen=True, kw_only=True)
class Column:
    """A setting in which all methods are compared."""

    name: str
    label: str
    settings: Settings = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One of the averages in a run's result."""

    name: str  # in result.json
    label: str  # as the paper prints it


@dataclass(frozen=True, kw_only=True)
class DataChoice:
    """Data that a table can be run on, with all that goes with it."""

    name: str
    about: str  # one line, for people who have to find the files
    settings: Settings  # data, partition, model, views, training
    columns: tuple[Column, ...]
    references: tuple[Reference, ...]
    rounds: int

    @property
    def needs_folder(self) -> bool:
        return FOLDER in repr(self.settings)


@dataclass(frozen=True)
class Cell:
    row: Row
    column: Column

    @property
    def name(self) -> str:
        return f"{self.row.name}/{self.column.name}"


@dataclass(frozen=True, kw_only=True)
class PublishedTable:
    """Rows are methods, columns are settings."""

    name: str  # paper/table
    title: str
    choices: Mapping[str, DataChoice]  # the first is the default
    choice: DataChoice
    rounds: int
    rows: tuple[Row, ...]
    metrics: tuple[Metric, ...]
    criterion: Criterion
    remarks: tuple[str, ...] = ()  # where our settings depart from the paper's

    @property
    def labels(self) -> dict[str, str]:
        """What rows, columns and metrics are called in print."""
        named: tuple[Row | Column | Metric, ...] = (*self.rows, *self.choice.columns, *self.metrics)
        return {AVERAGE: AVERAGE} | {each.name: each.label for each in named}

    def cells(self, patterns: Sequence[str] = ()) -> list[Cell]:
        """The cells that any pattern ROWS/COLUMNS fits, in their order; all but variants if none.

        Either half is a list of names, with * and ? as in file names, and may be left out.
        """
        rows = [row.name for row in self.rows]
        unasked = [row.name for row in self.rows if row.kind != "variant"]
        columns = [column.name for column in self.choice.columns]
        chosen: dict[str, None] = {}  # in the order in which they are named: it is that of runs
        for pattern in patterns or ("/",):
            row_half, _, column_half = pattern.partition("/")
            for row in _fitting("row", row_half, rows, unasked):
                for column in _fitting("column", column_half, columns, columns):
                    chosen[f"{row}/{column}"] = None
        every = [Cell(row, column) for row in self.rows for column in self.choice.columns]
        by_name = {cell.name: cell for cell in every}
        return [by_name[name] for name in chosen]

    def settings(self, cell: Cell, seed: int, folder: Path | None = None) -> dict[str, Any]:
        if folder is None and self.choice.needs_folder:
            others = [name for name in self.choices if name != self.choice.name]
            raise UserError(
                f"{self.name} on {self.choice.name} needs --from FOLDER: {self.choice.about}"
                + (f"; other choices of --data: {', '.join(others)}" if others else "")
            )
        merged: dict[str, Any] = {"rounds": self.rounds, "seed": seed}
        for part in (self.choice.settings, cell.column.settings, cell.row.settings):
            merged = _merged(merged, part)
        # As it was given: a recipe that names no machine's own path is the same one elsewhere.
        filled: dict[str, Any] = _filled(merged, "" if folder is None else str(folder))
        return filled

    def recipe(
        self, cell: Cell, seed: int, folder: Path | None = None, changes: Iterable[str] = ()
    ) -> Recipe:
        """``changes`` are PLACE=VALUE, as in ``fedquilt run --set``."""
        from fedquilt.recipes.recipe import recipe_from, with_overrides

        return recipe_from(with_overrides(self.settings(cell, seed, folder), changes))


def choose(table: str, choices: Iterable[DataChoice], name: str | None) -> DataChoice:
    """The choice of that name; without a name the first."""
    known = {choice.name: choice for choice in choices}
    if name is not None and name not in known:
        raise UserError(f"{table} has no data called {name!r}{nearest(name, known)}")
    return known[name or next(iter(known))]


def _fitting(what: str, half: str, known: Sequence[str], unasked: Sequence[str]) -> list[str]:
    if not half:
        return list(unasked)
    fitting: list[str] = []
    for pattern in half.lower().split(","):
        wanted = pattern.strip()
        found = [wanted] if wanted in known else [n for n in unasked if fnmatchcase(n, wanted)]
        if not found:
            raise UserError(f"--cells: no {what} is called {wanted!r}{nearest(wanted, known)}")
        fitting += found
    return fitting


def _merged(settings: Settings, changes: Settings) -> dict[str, Any]:
    """Settings inside settings are merged too; any other value is replaced."""
    merged = copy.deepcopy(dict(settings))
    for key, value in changes.items():
        inner = merged.get(key)
        if isinstance(inner, Mapping) and isinstance(value, Mapping):
            merged[key] = _merged(inner, value)
        else:
            merged[key] = copy.deepcopy(value)
    return merged


def _filled(value: Any, folder: str) -> Any:
    if isinstance(value, Mapping):
        return {key: _filled(entry, folder) for key, entry in value.items()}
    return value.replace(FOLDER, folder) if isinstance(value, str) else value
