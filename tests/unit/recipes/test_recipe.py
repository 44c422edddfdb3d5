"""Recipes: every registered class round-trips; files, overrides and paths."""

from __future__ import annotations

import dataclasses
import json
import math
import typing
from collections.abc import Mapping
from typing import Any, Literal

import pytest
from support.recipe_settings import settings

from fedquilt.core.errors import UserError
from fedquilt.core.registry import find
from fedquilt.data.annotations import ANNOTATIONS
from fedquilt.data.partitions import PARTITIONS
from fedquilt.data.sources import SOURCES
from fedquilt.methods import METHODS
from fedquilt.recipes.recipe import Recipe, read_recipe, recipe_from

TABLES = {
    "data": SOURCES,
    "partition": PARTITIONS,
    "annotation": ANNOTATIONS,
    "method": METHODS,
}
PARTS = [(place, name) for place, table in TABLES.items() for name in table]
NEEDED = {  # fields without a default
    "clients": 3,
    "concentration": 0.5,
    "presence_share": 0.5,
    "missing": 1,
    "annotates": {"0": ["digit 0", "digit 1"], "1": []},
    "folder": "images",
    "labels": "labels.csv",
    "flag": "dermamnist",
    "classes": ["a", "b"],
    "content": "sha256:0",
    "images": 6,
    "shape": [1, 2, 2],
}
VARIANTS = [
    (name, variant) for name in METHODS for variant in find("method", METHODS, name).variants
]


def needed_by(place: str, name: str) -> dict[str, Any]:
    """Return values for the settings that have no default."""
    fields = dataclasses.fields(find(place, TABLES[place], name))
    return {
        field.name: NEEDED[field.name]
        for field in fields
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }


def through_json(recipe: Recipe) -> Recipe:
    return recipe_from(json.loads(json.dumps(recipe.to_dict(), allow_nan=False)))


@pytest.mark.parametrize(("place", "name"), PARTS)
def test_every_registered_class_round_trips(place, name):
    recipe = recipe_from(settings(**{place: {"name": name} | needed_by(place, name)}))
    assert recipe.to_dict()[place]["name"] == name
    assert type(getattr(recipe, place)) is find(place, TABLES[place], name)
    assert through_json(recipe) == recipe
    assert through_json(recipe).hash == recipe.hash


def others(kind: Any, value: Any) -> list[Any]:
    """Return other values of a field's type, or the same value if none can be guessed."""
    if typing.get_origin(kind) is Literal:
        return [choice for choice in typing.get_args(kind) if choice != value]
    if kind is bool:
        return [not value]
    if kind is float:
        return [value * 0.875, value * 1.125]
    if kind is int:
        return [value + 1]
    return [value]


@pytest.mark.parametrize("name", METHODS)
def test_every_field_of_a_method_round_trips(name):
    kind = find("method", METHODS, name)
    hints = typing.get_type_hints(kind)
    method = kind()
    for field in dataclasses.fields(kind):
        for changed in others(hints[field.name], getattr(method, field.name)):
            try:
                recipe = recipe_from(settings(method={"name": name, field.name: changed}))
            except UserError:  # some values are only valid together with others
                continue
            assert getattr(recipe.method, field.name) == changed
            assert through_json(recipe) == recipe


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
def test_every_variant_round_trips(name, variant):
    recipe = recipe_from(settings(method={"name": name, "variant": variant}))
    chosen = find("method", METHODS, name).variants[variant]
    described = vars(recipe.method) | dict(recipe.method.fixed)
    tables = {field: entry for field, entry in chosen.items() if isinstance(entry, Mapping)}
    assert {field: described[field] for field in chosen if field not in tables} == {
        field: entry for field, entry in chosen.items() if field not in tables
    }
    for field, entry in tables.items():
        assert {key: getattr(described[field], key) for key in entry} == dict(entry)
    assert recipe.method != find("method", METHODS, name)()
    assert "variant" not in recipe.to_dict()["method"]
    assert through_json(recipe) == recipe


def test_there_is_a_variant_to_test():
    assert ("fedmlp", "released") in VARIANTS


def test_views_round_trip_as_names_and_as_augmentations():
    views = {"weak": "flip", "strong": {"degrees": 5, "scale": [0.5, 2]}}
    recipe = recipe_from(settings(views=views))
    assert recipe.views.weak == "flip"
    assert recipe.views.strong.scale == (0.5, 2.0)
    assert through_json(recipe) == recipe


def test_the_hash_depends_on_every_setting():
    hashes = {
        recipe_from(settings(**change)).hash
        for change in (
            {},
            {"seed": 1},
            {"rounds": 41},
            {"allocation_seed": 0},
            {"method": {"name": "fedavg-pl"}},
            {"method": {"name": "fedavg", "training": {"lr": 0.1}}},
            {"evaluation": {"every": 2}},
        )
    }
    assert len(hashes) == 7


def test_the_hash_does_not_depend_on_the_order_of_keys():
    reordered = dict(reversed(settings().items()))
    assert recipe_from(reordered).hash == recipe_from(settings()).hash


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"round": 3}, r"^recipe has no field 'round'; did you mean 'rounds'\?"),
        ({"model": {"backbon": "mlp"}}, r"recipe.model has no field 'backbon'.*'backbone'"),
        (
            {"method": {"name": "fedmlp", "warmup_round": 5}},
            r"^recipe.method has no field 'warmup_round'; did you mean 'warmup_rounds'\?$",
        ),
        (
            {"method": {"name": "fedavg", "training": {"learning_rate": 0.1}}},
            r"recipe.method.training has no field 'learning_rate'",
        ),
        (
            {"method": {"name": "fedavg", "server_step": {"momentun": 0.1}}},
            r"recipe.method.server_step has no field 'momentun'; did you mean 'momentum'\?",
        ),
        ({"method": {"name": "fedmpl"}}, r"unknown method 'fedmpl'; did you mean 'fedmlp'\?"),
        ({"data": {"name": "digit-mosaic"}}, "unknown data source .*'digits-mosaic'"),
        ({"partition": {"name": "idd"}}, r"unknown partition 'idd'; did you mean 'iid'\?"),
        ({"annotation": {"name": "mising"}}, r"unknown annotation 'mising'.*'missing'"),
        ({"partition": {"name": "iid"}}, "recipe.partition lacks clients"),
        ({"method": {"training": {}}}, r"recipe.method.name is missing: which method\?"),
        ({"rounds": 0}, "rounds must be at least 1, found 0"),
        ({"checkpoint_every": 0}, "checkpoint_every must be at least 1, found 0"),
        ({"cohort_size": 0}, "cohort_size must be at least 1, found 0"),
        ({"evaluation": {"every": 0}}, "every must be at least 1, found 0"),
    ],
)
def test_a_mistake_is_reported_with_its_path(change, complaint):
    with pytest.raises(UserError, match=complaint):
        recipe_from(settings(**change))


def test_missing_tables_are_named():
    with pytest.raises(UserError, match="recipe lacks data, partition, annotation, method"):
        recipe_from({})


TOML = """
rounds = 7
cohort_size = 2

[data]
name = "digits-mosaic"
train = 100

[partition]
name = "iid"
clients = 4

[annotation]
name = "listed"
annotates = { 0 = ["digit 0"], 1 = ["digit 1"] }

[method]
name = "fedmlp"
variant = "released"

[method.training]
lr = 1
"""


def test_toml_and_json_give_the_same_recipe(tmp_path):
    (tmp_path / "recipe.toml").write_text(TOML)
    recipe = read_recipe(tmp_path / "recipe.toml")
    assert recipe.rounds == 7
    assert recipe.method.training.lr == 1.0
    (tmp_path / "recipe.json").write_text(json.dumps(recipe.to_dict()))
    assert read_recipe(tmp_path / "recipe.json") == recipe


@pytest.mark.parametrize(
    ("file", "content", "complaint"),
    [
        ("recipe.toml", b"rounds = ", "recipe.toml is not valid TOML"),
        ("recipe.json", b"{", "recipe.json is not valid JSON"),
        ("recipe.toml", b"\xff\xfe", "recipe.toml is not valid TOML"),
        ("recipe.json", b"[1]", "recipe.json is not valid JSON: expected a table of settings"),
    ],
)
def test_a_file_that_is_not_a_recipe_is_a_user_error(tmp_path, file, content, complaint):
    (tmp_path / file).write_bytes(content)
    with pytest.raises(UserError, match=complaint):
        read_recipe(tmp_path / file)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"data": "digits-mosaic"}, "recipe.data must be a table of settings, found 'digits"),
        ({"model": ["resnet18"]}, r"recipe.model must be a table of settings, found \['resnet18"),
        ({"method": {"name": 5}}, r"recipe\.method\.name"),
        ({"method": {"name": "fedavg", "training": {"lr": math.nan}}}, r"method\.training\.lr"),
    ],
)
def test_an_impossible_value_is_a_user_error(tmp_path, change, complaint):
    (tmp_path / "recipe.json").write_text(json.dumps(settings(**change)))
    with pytest.raises(UserError, match=complaint):
        read_recipe(tmp_path / "recipe.json")


def test_a_date_in_a_recipe_is_a_user_error(tmp_path):
    (tmp_path / "recipe.toml").write_text("rounds = 2026-01-01\n" + TOML.replace("rounds = 7", ""))
    with pytest.raises(UserError, match=r"recipe\.rounds must be int, found datetime\.date"):
        read_recipe(tmp_path / "recipe.toml")


def test_a_missing_recipe_file_is_a_user_error(tmp_path):
    with pytest.raises(UserError, match=r"none\.toml cannot be read: No such file"):
        read_recipe(tmp_path / "none.toml")
    with pytest.raises(UserError, match="cannot be read: Is a directory"):
        read_recipe(tmp_path)


@pytest.mark.parametrize("name", METHODS)
def test_a_training_table_keeps_the_method_s_other_training_defaults(name: str):
    method = {"name": name} | needed_by("method", name)
    usual = recipe_from(settings(method=method)).method.training
    changed = recipe_from(settings(method=method | {"training": {"lr": 0.125}})).method.training
    assert changed == dataclasses.replace(usual, lr=0.125)


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
def test_a_training_table_keeps_the_variant_s_other_training_settings(name: str, variant: str):
    method = {"name": name, "variant": variant} | needed_by("method", name)
    usual = recipe_from(settings(method=method)).method
    chosen = find("method", METHODS, name).variants[variant].get("training", {})
    assert {key: getattr(usual.training, key) for key in chosen} == dict(chosen)
    changed = recipe_from(settings(method=method | {"training": {"epochs": 7}})).method
    assert changed.training == dataclasses.replace(usual.training, epochs=7)
