"""Recipes: single settings that are overridden, and paths relative to the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.recipe_settings import settings

from fedquilt.core.errors import UserError
from fedquilt.recipes.recipe import read_settings, recipe_from, with_overrides


@pytest.mark.parametrize(
    ("override", "place", "value"),
    [
        ("rounds=20", ("rounds",), 20),
        (" rounds = 20 ", ("rounds",), 20),
        ("method.name=fedmlp", ("method", "name"), "fedmlp"),
        ('method.name="fedmlp"', ("method", "name"), "fedmlp"),
        ("method.training.lr=3e-4", ("method", "training", "lr"), 3e-4),
        ("method.training.steps=none", ("method", "training", "steps"), None),
        ("method.training.keep_optimizer=true", ("method", "training", "keep_optimizer"), True),
        ("model.mean=[0.1, 0.2]", ("model", "mean"), [0.1, 0.2]),
        ("views.weak={degrees = 5}", ("views", "weak"), {"degrees": 5}),
        ("data.folder=a=b", ("data", "folder"), "a=b"),
        ("data.folder=", ("data", "folder"), ""),
        ("data.folder=/data/x y", ("data", "folder"), "/data/x y"),
        ("annotation.annotates.0=['a']", ("annotation", "annotates", "0"), ["a"]),
    ],
)
def test_overrides(override, place, value):
    changed: Any = with_overrides(settings(), [override])
    for key in place:
        changed = changed[key]
    assert changed == value
    assert type(changed) is type(value)


def test_later_overrides_win_and_the_input_is_unchanged():
    original = settings()
    changed = with_overrides(original, ["rounds=1", "rounds=2", "partition.clients=9"])
    assert changed["rounds"] == 2
    assert changed["partition"] == {"name": "iid", "clients": 9}
    assert original == settings()


@pytest.mark.parametrize("override", ["rounds", "=3", " =3", ""])
def test_an_override_needs_a_place_and_a_value(override):
    with pytest.raises(UserError, match=r"--set needs PLACE=VALUE, e\.g\. rounds=20; found"):
        with_overrides(settings(), [override])


@pytest.mark.parametrize("override", ["partition.name.x=1", "rounds.x=1"])
def test_an_override_below_a_value_is_refused(override):
    with pytest.raises(UserError, match="is not a table of settings"):
        with_overrides(settings(rounds=3), [override])


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        ("method.warmup_round=3", "recipe.method has no field 'warmup_round'"),
        ("methd.name=fedavg", r"recipe has no field 'methd'; did you mean 'method'\?"),
        ("rounds=many", r"recipe.rounds must be int, found 'many' \(str\)"),
        ("rounds=2.5", "recipe.rounds must be int, found 2.5"),
        ("method.training.lr=nan", r"recipe\.method\.training\.lr"),
        ("method=fedavg", "recipe.method must be a table of settings, found 'fedavg'"),
    ],
)
def test_a_wrong_override_is_reported_when_the_recipe_is_read(override, complaint):
    with pytest.raises(UserError, match=complaint):
        recipe_from(with_overrides(settings(), [override]))


def write_recipe(folder: Path, data: dict[str, str], model: dict[str, str]) -> Path:
    path = folder / "recipe.json"
    path.write_text(json.dumps({"data": data, "model": model}))
    return path


def test_relative_paths_start_at_the_folder_of_the_recipe(tmp_path, monkeypatch):
    study, elsewhere = tmp_path / "study", tmp_path / "elsewhere"
    (study / "images").mkdir(parents=True)
    elsewhere.mkdir()
    for name in ("labels.csv", "names.toml", "start.safetensors"):
        (study / name).touch()
    path = write_recipe(
        study,
        {"folder": "images", "labels": "./labels.csv", "label_names": "names.toml"},
        {"weights": "start.safetensors", "backbone": "images"},
    )
    monkeypatch.chdir(elsewhere)
    found = read_settings(Path("../study/recipe.json"))
    root = path.parent.resolve()
    assert found["data"] == {
        "folder": str(root / "images"),
        "labels": str(root / "labels.csv"),
        "label_names": str(root / "names.toml"),
    }
    assert found["model"] == {"weights": str(root / "start.safetensors"), "backbone": "images"}


def test_absolute_paths_are_kept(tmp_path):
    path = write_recipe(tmp_path, {"folder": "/data/images"}, {"weights": "/data/w.safetensors"})
    assert read_settings(path)["data"]["folder"] == "/data/images"
    assert read_settings(path)["model"]["weights"] == "/data/w.safetensors"


@pytest.mark.parametrize("word", ["random", "timm"])
def test_a_keyword_is_not_mistaken_for_a_file(tmp_path, word):
    (tmp_path / word).mkdir()
    path = write_recipe(tmp_path, {}, {"weights": word})
    assert read_settings(path)["model"]["weights"] == word
