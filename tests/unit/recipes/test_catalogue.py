"""The catalogue, read from source text, agrees with the imported classes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from fedquilt.core.errors import UserError
from fedquilt.core.registry import find
from fedquilt.data.annotations import ANNOTATIONS
from fedquilt.data.partitions import PARTITIONS
from fedquilt.data.sources import SOURCES
from fedquilt.methods import METHODS
from fedquilt.recipes.catalogue import KINDS, entries, find_recipe, recipe_paths
from fedquilt.recipes.recipe import read_recipe
from fedquilt.recipes.source_docs import Field, read_class, read_module

TABLES = {
    "methods": METHODS,
    "datasets": SOURCES,
    "partitions": PARTITIONS,
    "annotations": ANNOTATIONS,
}
NAMES = [(kind, name) for kind, table in TABLES.items() for name in table]


def entry_of(kind: str, name: str):
    return {entry.name: entry for entry in entries(kind)}[name]


def field_of(kind: str, name: str, field: str) -> Field:
    return {each.name: each for each in entry_of(kind, name).fields}[field]


@pytest.mark.parametrize(("kind", "name"), NAMES)
def test_fields_are_those_of_the_class(kind: str, name: str):
    imported = dataclasses.fields(find(kind, TABLES[kind], name))
    read = entry_of(kind, name).fields
    assert [field.name for field in read] == [field.name for field in imported]
    needed = [
        field.name
        for field in imported
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    assert [field.name for field in read if field.default is None] == needed


@pytest.mark.parametrize(("kind", "name"), NAMES)
def test_every_entry_has_an_idea_and_a_description(kind: str, name: str):
    entry = entry_of(kind, name)
    assert entry.idea
    assert entry.about


def test_a_child_class_overrides_a_default_in_place():
    assert field_of("methods", "fedavg", "unannotated").default == "'negative'"
    assert field_of("methods", "fedavg-pl", "unannotated").default == "'skip'"


def test_the_comment_of_a_field_is_read():
    comment = field_of("methods", "fedmlp", "warmup_rounds").comment
    assert comment == "t_1: rounds on annotated labels only, before any tag"


def test_a_type_alias_is_resolved():
    assert field_of("methods", "fedmlp", "rounding").type == "Literal['floor', 'ceil']"


def test_nested_settings_are_listed():
    training = field_of("methods", "fedavg", "training")
    assert "weight_decay" in [field.name for field in training.fields]


def test_a_default_factory_is_shown_as_its_value():
    training = field_of("methods", "centralised", "training")
    assert training.default == "LocalTraining(keep_optimizer=True)"


def test_variants_are_read():
    variants = find("method", METHODS, "fedmlp").variants
    assert entry_of("methods", "fedmlp").variants == variants


def test_an_unknown_kind_suggests_the_closest_one():
    with pytest.raises(UserError, match="did you mean 'methods'"):
        entries("method")
    assert all(entries(kind) for kind in KINDS)


def test_a_class_of_another_package_is_read_through_relative_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    package = tmp_path / "outside_package"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "parent.py").write_text(
        "class Parent:\n"
        "    one: int = (\n"
        "        1  # first\n"
        "    )\n"
        "    # and more\n"
        "    two: list = field(default_factory=list)\n"
        "    added_later: int = added(4)\n"
    )
    (package / "child.py").write_text(
        '"""Paper."""\n'
        "from .parent import Parent as Base\n"
        "class Child(Base):\n"
        '    """Idea."""\n'
        "    three: str\n"
        "    constant: ClassVar[int] = 3\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    read_module.cache_clear()
    found = read_class("outside_package.child:Child")
    assert (found.docstring, found.module_docstring) == ("Idea.", "Paper.")
    assert found.fields == (
        Field("one", "int", "1", "first and more"),
        Field("two", "list", "list()", ""),
        Field("added_later", "int", "4", ""),
        Field("three", "str", None, ""),
    )
    assert found.constants == {"constant": 3}


def test_an_entry_without_source_is_still_listed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        "fedquilt.recipes.catalogue.all_methods", lambda: {"odd": "no_such_package:Odd"}
    )
    (entry,) = entries("methods")
    assert (entry.name, entry.about, entry.fields) == ("odd", "no_such_package:Odd", ())


def test_shipped_recipes_are_complete_and_have_a_description():
    for entry in entries("recipes"):
        assert entry.idea, entry.name
        method = read_recipe(find_recipe(entry.name)).to_dict()["method"]["name"]
        assert entry.about.startswith(f"{method} on ")


def test_shipped_recipes_differ_only_in_the_method():
    settings = [read_recipe(recipe_paths()[f"digits-{name}"]) for name in ("fedmlp", "fedavg")]
    rest = [dataclasses.replace(recipe, method=settings[0].method) for recipe in settings]
    assert rest[0] == rest[1]


def test_a_recipe_file_wins_over_a_shipped_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert find_recipe("digits-fedmlp") == recipe_paths()["digits-fedmlp"]
    Path("digits-fedmlp").touch()
    assert find_recipe("digits-fedmlp") == Path("digits-fedmlp")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("digit-fedmlp", "did you mean 'digits-fedmlp'"),
        ("missing.toml", "there is no recipe file missing.toml"),
        ("folder/missing", "there is no recipe file folder/missing"),
    ],
)
def test_a_missing_recipe_is_explained(name: str, message: str):
    with pytest.raises(UserError, match=message):
        find_recipe(name)
