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

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "idea": self.idea,
            "about": self.about,
            "fields": [each.to_dict() for each in self.fields],
            "variants": {name: dict(settings) for name, settings in self.variants.items()},
        }


def entries(kind: str) -> list[Entry]:
    """Return all entries of a kind, one of ``KINDS``."""
    if kind not in KINDS:
        raise UserError(f"unknown kind {kind!r}{nearest(kind, KINDS)}")
    if kind == "recipes":
        return [_recipe_entry(path) for path in recipe_paths().values()]
    if kind == "tables":
        return [_table_entry(name) for name in TABLES]
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
    return Entry(name=name, idea=table.title, about=f"data: {', '.join(table.choices)}")


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
