"""PublishedTable: a table of a paper; each cell and seed is a recipe."""

from __future__ import annotations

import copy
import statistics
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

Settings = Mapping[str, Any]  # of a recipe, as in a recipe file
FOLDER = "{folder}"  # placeholder in settings for the folder with the user's files


@dataclass(frozen=True, kw_only=True)
class Row:
    """A method with its settings.

    A bound sees more labels or images than the rivals. A variant runs only if it is named
    explicitly. Neither is ranked.
    """

    name: str  # on the command line and in folder names
    label: str  # as the paper prints it
    settings: Settings
    kind: Literal["rival", "bound", "variant"] = "rival"


def method_row(name: str, label: str, method: str, *, kind: Any = "rival", **settings: Any) -> Row:
    """Build a row from a method's name and settings.

    ``kind`` is Any because a type checker assumes that ``**settings`` may contain it.
    """
    return Row(name=name, label=label, settings={"method": {"name": method, **settings}}, kind=kind)


@dataclass(frozen=True, kw_only=True)
class Column:
    """Settings under which all methods are compared."""

    name: str
    label: str
    settings: Settings = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One of the averages in a run's result, or a class's own value."""

    name: str  # as named in result.json; of one class: any name of its own
    label: str  # as the paper prints it
    of_class: str | None = None  # the class whose value it is
    per_class: str = "auc"  # with ``of_class``: the metric, as named in result.json

    def read(self, result: Mapping[str, Any]) -> float | None:
        """Return the value; of one class, the mean over the models for which it is defined."""
        if self.of_class is None:
            value: float | None = result["metrics"][self.name]
            return value
        found = [
            report["per_class"][self.per_class][report["classes"].index(self.of_class)]
            for report in result["reports"].values()
        ]
        defined = [value for value in found if value is not None]
        return statistics.fmean(defined) if defined else None


@dataclass(frozen=True, kw_only=True)
class DataChoice:
    """Data that a table can be run on, with matching settings and published numbers."""

    name: str
    about: str  # one line that says which files are needed
    settings: Settings  # data, partition, model, views, training
    columns: tuple[Column, ...]
    references: tuple[Reference, ...]
    rounds: int

    @property
    def needs_folder(self) -> bool:
        return FOLDER in repr(self.settings)


@dataclass(frozen=True)
class Cell:
    """One method under one setting."""

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
    remarks: tuple[str, ...] = ()  # where our settings differ from the paper's

    @property
    def labels(self) -> dict[str, str]:
        """Printed names of rows, columns and metrics."""
        named: tuple[Row | Column | Metric, ...] = (*self.rows, *self.choice.columns, *self.metrics)
        return {AVERAGE: AVERAGE} | {each.name: each.label for each in named}

    def cells(self, patterns: Sequence[str] = ()) -> list[Cell]:
        """Return the cells that match any pattern ROWS/COLUMNS, in the order of the patterns.

        Either half is a comma-separated list of names with wildcards * and ?, and may be empty.
        Without patterns, return all cells but the variants.
        """
        rows = [row.name for row in self.rows]
        default_rows = [row.name for row in self.rows if row.kind != "variant"]
        columns = [column.name for column in self.choice.columns]
        chosen: dict[str, None] = {}  # an ordered set: cells run in this order
        for pattern in patterns or ("/",):
            row_half, _, column_half = pattern.partition("/")
            for row in _matching("row", row_half, rows, default_rows):
                for column in _matching("column", column_half, columns, columns):
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
        # Keep a relative folder relative, so that the recipe's hash is the same on every machine.
        filled: dict[str, Any] = _filled(merged, "" if folder is None else str(folder))
        return filled

    def recipe(
        self, cell: Cell, seed: int, folder: Path | None = None, changes: Iterable[str] = ()
    ) -> Recipe:
        """Return a cell's recipe; ``changes`` are PLACE=VALUE, as in ``fedquilt run --set``."""
        from fedquilt.recipes.recipe import recipe_from, with_overrides

        return recipe_from(with_overrides(self.settings(cell, seed, folder), changes))


def choose(table: str, choices: Iterable[DataChoice], name: str | None) -> DataChoice:
    """Return the choice called ``name``, or the first if ``name`` is None."""
    known = {choice.name: choice for choice in choices}
    if name is not None and name not in known:
        raise UserError(f"{table} has no data called {name!r}{nearest(name, known)}")
    return known[name or next(iter(known))]


def _matching(what: str, half: str, known: Sequence[str], default: Sequence[str]) -> list[str]:
    if not half:
        return list(default)
    matching: list[str] = []
    for pattern in half.lower().split(","):
        wanted = pattern.strip()
        found = [wanted] if wanted in known else [n for n in default if fnmatchcase(n, wanted)]
        if not found:
            raise UserError(f"--cells: no {what} is called {wanted!r}{nearest(wanted, known)}")
        matching += found
    return matching


def _merged(settings: Settings, changes: Settings) -> dict[str, Any]:
    """Merge ``changes`` into ``settings``; nested mappings are merged, other values replaced."""
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
