"""A run whose method did none of its work says so, with the reason, for every such method."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.tiny_runs import tiny_settings
from typer.testing import CliRunner

from fedquilt.cli.main import app
from fedquilt.recipes.recipe import recipe_from
from fedquilt.runs.experiment import run

ALONE = {"name": "positive-only"}  # every image at one client, with one positive class
EVERYTHING = {"name": "full"}


def result_of(folder: Path, method: str, settings: dict[str, Any], **changes: Any) -> Any:
    recipe = tiny_settings(method, **changes)
    recipe["method"] |= settings
    run(recipe_from(recipe), folder)
    return json.loads((folder / "result.json").read_text())


@pytest.mark.parametrize(
    ("method", "settings", "changes", "sentence"),
    [
        ("fedmlp", {"rounding": "floor"}, {}, "0 labels filled in: 0.01 of the at most 10 images"),
        ("fedmlp", {"warmup_rounds": 9}, {}, "0 labels filled in: the warm-up of 9 rounds filled"),
        ("fedmlp", {}, {"annotation": EVERYTHING}, "0 labels filled in: every label is annotated"),
        ("fedlsm", {"thresholds": [0, 1]}, {}, "0 labels filled in: no missing label was"),
        ("fedlsm", {"mixed_images": 0}, {}, "0 images mixed: "),
        ("cbafed", {}, {}, "0 labels filled in: the warm-up of 50 rounds filled all 2 rounds"),
        ("fedfixmatch", {"threshold": 1.0}, {}, "0 labels filled in: no image had all"),
        ("fedirm", {}, {}, "0 predictions matched: the warm-up of 20 rounds"),
        ("fedalc", {}, {"partition": ALONE}, "0 pairs of correlated classes: no image has"),
        ("fednoro", {}, {"annotation": EVERYTHING}, "0 missing labels distilled: every label"),
        ("quilt", {}, {"annotation": EVERYTHING}, "0 missing labels distilled: every label"),
        ("fssl", {}, {"annotation": EVERYTHING}, "0 missing labels distilled: every label"),
        ("rscfed", {}, {}, "0 clients left out of each group: a group of 3 is all 3 clients"),
        ("fedpu", {}, {}, "0 classes with positives only: every class"),
        ("fedvls", {}, {"annotation": EVERYTHING}, "0 vacant classes distilled: every client"),
        ("fedlgt", {"margin": 0.0}, {}, "0 uncertain labels hidden: no revealed label"),
    ],
)
def test_idle_method_says_so(
    tmp_path: Path, method: str, settings: dict[str, Any], changes: dict[str, Any], sentence: str
):
    if changes.get("partition") == ALONE:
        changes = {**changes, "annotation": EVERYTHING}
    result = result_of(tmp_path / "run", method, settings, **changes)
    assert any(said.startswith(sentence) for said in result["idle"]), result["idle"]
    assert 0 in result["activity"].values()


@pytest.mark.parametrize("method", ["fedmlp", "fedlsm", "fedfixmatch", "fedalc", "rscfed"])
def test_active_method_says_nothing(tmp_path: Path, method: str):
    settings: dict[str, Any] = {
        "fedmlp": {"adaptive_threshold": False},
        "fedlsm": {"thresholds": [0.499, 0.501]},
        "fedfixmatch": {"threshold": 0.5},
        "rscfed": {"group_size": 2},
    }.get(method, {})
    rule = {"annotation": EVERYTHING} if method == "fedalc" else {}  # it correlates all classes
    result = result_of(tmp_path / "run", method, settings, **rule)
    assert result["idle"] == []
    assert all(result["activity"].values())
    lines = (tmp_path / "run/history.jsonl").read_text().splitlines()
    last = json.loads(lines[-1])
    if method != "fedalc":  # counted at the server, after the last round
        assert last["activity"].keys() <= result["activity"].keys()


def test_method_without_such_machinery_has_no_counts(tmp_path: Path):
    result = result_of(tmp_path / "run", "fedavg-pl", {})
    assert (result["activity"], result["idle"]) == ({}, [])


def test_terminal_shows_the_sentence(tmp_path: Path):
    recipe = tmp_path / "recipe.json"
    recipe.write_text(json.dumps(tiny_settings() | {"rounds": 1}))
    result = CliRunner().invoke(app, ["run", str(recipe), "--out", str(tmp_path / "run")])
    assert "warning: 0 labels filled in: the warm-up of 1 round filled all 1" in result.stdout
