"""Catalogue of methods, data sets, partitions, annotations, recipes and tables.

Entries are read from source text or from modules without torch, because importing torch would make
``fedquilt list`` slow.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from fedquilt.core.errors import UserError, nearest
from fedquilt.data.annotations import ANNOTATIONS
from fedquilt.data.partitions import PARTITIONS
from fedquilt.data.sources import SOURCES
from fedquilt.methods import all_methods
from fedquilt.recipes.papers import TABLES, find_table
from fedquilt.recipes.papers.displays import DISPLAYS, Display
from fedquilt.recipes.papers.published_numbers import Reference
from fedquilt.recipes.papers.table import PublishedTable
from fedquilt.recipes.source_docs import ClassSource, Field, read_class

KINDS = ("methods", "datasets", "partitions", "annotations", "recipes", "tables")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One item of the catalogue, such as a method or a data set."""

    name: str
    idea: str  # one line
    about: str  # the paper of a method, the purpose of anything else
    fields: tuple[Field, ...] = ()
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # named sets of fields
    facts: Mapping[str, Any] = field(default_factory=dict)  # of a published table or figure

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "idea": self.idea,
            "about": self.about,
            "fields": [each.to_dict() for each in self.fields],
            "variants": {name: dict(settings) for name, settings in self.variants.items()},
            **self.facts,
        }


def entries(kind: str) -> list[Entry]:
    """Return all entries of a kind, one of ``KINDS``."""
    if kind not in KINDS:
        raise UserError(f"unknown kind {kind!r}{nearest(kind, KINDS)}")
    if kind == "recipes":
        return [_recipe_entry(path) for path in recipe_paths().values()]
    if kind == "tables":
        tables = [_table_entry(name) for name in TABLES]
        figures = [_display_entry(display) for display in DISPLAYS.values()]
        return sorted([*tables, *figures], key=lambda entry: _in_order(entry.name))
    about = _second_sentence if kind == "annotations" else _first_line_of_module
    return [_entry(name, place, about) for name, place in _table(kind).items()]


def _table(kind: str) -> Mapping[str, str]:
    if kind == "methods":
        return all_methods()
    return {"datasets": SOURCES, "partitions": PARTITIONS, "annotations": ANNOTATIONS}[kind]


def find_recipe(name_or_path: str) -> Path:
    """Return the path of a recipe file or, if it does not exist, of a shipped recipe's file."""
    path, shipped = Path(name_or_path), recipe_paths()
    if path.is_file():
        return path
    if name_or_path in shipped:
        return shipped[name_or_path]
    if path.suffix in (".toml", ".json") or len(path.parts) > 1:
        raise UserError(
            f"there is no recipe file {path}; `fedquilt list recipes` shows the shipped ones"
        )
    raise UserError(f"unknown recipe {name_or_path!r}{nearest(name_or_path, shipped)}")


def recipe_paths() -> dict[str, Path]:
    """Return the shipped recipes' files by name; the first comment line of each describes it."""
    folder = Path(str(files("fedquilt"))) / "recipes" / "files"
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def _recipe_entry(path: Path) -> Entry:
    text = path.read_text(encoding="utf-8")
    settings = tomllib.loads(text)
    first = text.partition("\n")[0]
    return Entry(
        name=path.stem,
        idea=first.lstrip("# ") if first.startswith("#") else "",
        about=f"{settings['method']['name']} on {settings['data']['name']}",
    )


def _table_entry(name: str) -> Entry:
    table = find_table(name)
    numbers = published_numbers(table)
    rows = sum(row.kind != "variant" for row in table.rows)
    about = f"{rows} rows, {len(numbers)} published numbers; data: {', '.join(table.choices)}"
    facts = {
        "data": {choice.name: choice.about for choice in table.choices.values()},
        "rows": {row.name: row.label for row in table.rows},
        "columns": {
            name: {column.name: column.label for column in choice.columns}
            for name, choice in table.choices.items()
        },
        "metrics": {metric.name: metric.label for metric in table.metrics},
        "criterion": table.criterion.words(table.labels),
        "remarks": list(table.remarks),
        "published": numbers,
    }
    return Entry(name=name, idea=table.title, about=about, facts=facts)


def _display_entry(display: Display) -> Entry:
    table = find_table(display.table)
    counts = display.counts()
    needed = f"the runs of {display.table}" if display.trains else "no training"
    shown = f", {sum(map(len, counts.values()))} published numbers" if counts else ""
    facts = {
        "data": {name: table.choices[name].about for name in display.data()},
        "kind": display.kind,
        "table": display.table,
        "cells": display.cells,
        "remarks": list(display.remarks),
        "published": [
            {"row": client, "column": label, "metric": "positives", "value": value}
            for client, row in counts.items()
            for label, value in row.items()
        ],
    }
    about = f"{needed}{shown}; data: {', '.join(display.data())}"
    return Entry(name=display.name, idea=display.title, about=about, facts=facts)


def published_numbers(table: PublishedTable) -> list[dict[str, Any]]:
    """Return the paper's numbers on its own data, each once."""
    references: dict[str, tuple[str, Reference]] = {}  # several sizes of the same data share one
    for choice in table.choices.values():
        for reference in choice.references:
            if reference.same_data:
                references.setdefault(reference.label, (choice.name, reference))
    numbers = []
    for data, reference in references.values():
        rows: list[Any] = []
        for row, columns in reference.values.items():
            if columns in rows:  # the same row in another form
                continue
            rows.append(columns)
            numbers += [
                {
                    "data": data,
                    "row": row,
                    "column": column,
                    "metric": metric,
                    "value": value,
                    "deviation": reference.deviation(row, column, metric),
                }
                for column, metrics in columns.items()
                for metric, value in metrics.items()
            ]
    return numbers


def _in_order(name: str) -> tuple[str, str, int]:
    """Sort by paper, then tables before figures, then by number."""
    paper, _, what = name.partition("/")
    kind = what.rstrip("0123456789")
    return paper, {"table": "a"}.get(kind, kind), int(what[len(kind) :] or 0)


def _entry(name: str, place: str, about: Callable[[ClassSource], str]) -> Entry:
    try:
        found = read_class(place)
    except LookupError:  # an entry of another package, installed without source
        return Entry(name=name, idea="(source not available)", about=place)
    return Entry(
        name=name,
        idea=_first_line(found.docstring),
        about=about(found),
        fields=found.fields,
        variants=found.constants.get("variants", {}),
    )


def _first_line_of_module(found: ClassSource) -> str:
    return _first_line(found.module_docstring)


def _second_sentence(found: ClassSource) -> str:
    """Annotation rules share a module, so the class docstring has to say what a rule is for."""
    _, _, rest = found.docstring.partition("\n\n")
    sentence = " ".join(rest.split()).partition(". ")[0].rstrip(".").replace("``", "`")
    return f"{sentence}." if sentence else _first_line_of_module(found)


def _first_line(docstring: str) -> str:
    return docstring.partition("\n")[0].replace("``", "`")
