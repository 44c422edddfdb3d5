"""Thresholds and calibration on the command line: chosen in a run, shown, and set by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.tiny_runs import tiny_settings
from typer.testing import CliRunner

from fedquilt.cli.decision_options import given_thresholds, split_class, with_decision_options
from fedquilt.cli.main import app
from fedquilt.core.errors import UserError
from fedquilt.recipes.recipe import recipe_from

ENOUGH = {
    "data": {"name": "digits-mosaic", "classes": 3, "train": 200, "test": 60},
    "annotation": {"name": "full"},
    "validation": {"share": 0.4},
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A run with thresholds and calibration, and what it printed."""
    root = tmp_path_factory.mktemp("decisions")
    recipe = root / "recipe.json"
    recipe.write_text(json.dumps(tiny_settings("fedavg", rounds=3, **ENOUGH)))
    arguments = ["run", str(recipe), "--out", str(root / "run"), "--calibration", "platt"]
    rules = ["--threshold-rule", "sensitivity>=0.9", "--threshold", "digit 2=0.4"]
    result = CliRunner().invoke(app, [*arguments, *rules])
    assert result.exit_code == 0, result.output
    return root / "run", result


def test_a_run_stores_and_shows_them(finished: tuple[Path, Any]):
    run, result = finished
    card = json.loads((run / "model.json").read_text())
    thresholds, calibration = card["thresholds"], card["calibration"]
    assert (thresholds["rule"], thresholds["fitted_on"]) == ("sensitivity>=0.9", "validation")
    assert thresholds["classes"]["digit 0"]["sensitivity"] >= 0.9
    assert thresholds["classes"]["digit 2"]["given"] is True
    assert calibration["classes"]["digit 0"].keys() >= {"slope", "intercept", "positives"}
    assert "Thresholds (%): chosen on validation, then on these images" in result.stdout
    assert "Calibration by platt" in result.stdout


def test_decisions_of_the_report_follow_the_thresholds(finished: tuple[Path, Any]):
    run, _ = finished
    stored = json.loads((run / "result.json").read_text())
    quality = stored["decisions"]["global"]["thresholds"]
    recall = dict(zip(stored["reports"]["global"]["classes"],
                      stored["reports"]["global"]["per_class"]["recall"]))  # fmt: skip
    for name, found in quality.items():
        assert found["sensitivity"]["value"] == pytest.approx(recall[name])
        assert found["sensitivity"]["low"] <= recall[name] <= found["sensitivity"]["high"]


def evaluate(run: Path, *arguments: str) -> Any:
    return CliRunner().invoke(app, ["evaluate", str(run), *arguments])


def test_evaluate_uses_them_too(finished: tuple[Path, Any]):
    run, _ = finished
    stored = json.loads((run / "result.json").read_text())
    again = json.loads(evaluate(run, "--json").stdout)
    assert again["averages"] == stored["metrics"]
    quality = again["decisions"]["global"]["quality"]
    assert quality["thresholds"] == stored["decisions"]["global"]["thresholds"]
    assert quality["calibration"] == stored["decisions"]["global"]["calibration"]
    assert "where no other is given" in evaluate(run).stdout


def test_predict_uses_them_too(finished: tuple[Path, Any], tmp_path: Path):
    run, _ = finished
    image = tmp_path / "image.png"
    Image.fromarray(np.full((16, 16), 90, np.uint8)).save(image)
    asked = CliRunner().invoke(
        app, ["predict", str(run), str(image), "--json", "--threshold", "digit 1=0"]
    )
    assert asked.exit_code == 0, asked.output
    content = json.loads(asked.stdout)
    card = json.loads((run / "model.json").read_text())
    zero, one, _ = content["predictions"]
    stored, fit = (card[key]["classes"]["digit 0"] for key in ("thresholds", "calibration"))
    assert zero["threshold"] == stored["probability"]
    assert (zero["decision"] == "present") == (zero["logit"] >= stored["logit"])
    shifted = fit["slope"] * zero["logit"] + fit["intercept"]
    assert zero["calibrated"] == pytest.approx(1 / (1 + np.exp(-shifted)))
    assert (one["threshold"], one["decision"]) == (0, "present")
    assert content["rule"] == "sensitivity>=0.9"
    assert content["given_thresholds"] == {"digit 1": 0}


def test_thresholds_set_by_hand_win(finished: tuple[Path, Any]):
    run, _ = finished

    def recall(*arguments: str) -> list[float]:
        content = json.loads(evaluate(run, *arguments, "--json").stdout)
        found: list[float] = content["reports"]["global"]["per_class"]["recall"]
        return found

    stored = recall()
    assert recall("--threshold", "digit 0=1") == [0, *stored[1:]]
    assert recall("--threshold", "0", "--threshold", "digit 0=1") == [0, 1, 1]


def test_a_class_that_does_not_exist(finished: tuple[Path, Any], tmp_path: Path):
    result = evaluate(finished[0], "--threshold", "digit 9=0.5")
    assert result.exit_code == 1
    assert "there is no class 'digit 9'" in result.stderr
    recipe = tmp_path / "recipe.json"
    recipe.write_text(json.dumps(tiny_settings("fedavg")))
    begun = CliRunner().invoke(
        app,
        ["run", str(recipe), "--out", str(tmp_path / "run"), "--threshold-rule", "digit 9=youden"],
    )
    assert begun.exit_code == 1
    assert "there is no class 'digit 9'" in begun.stderr
    assert not (tmp_path / "run" / "recipe.json").exists()  # found before training


def test_without_a_validation_part_it_says_so(tmp_path: Path):
    recipe = tmp_path / "recipe.json"
    recipe.write_text(json.dumps(tiny_settings("fedavg", rounds=1)))
    result = CliRunner().invoke(
        app, ["run", str(recipe), "--out", str(tmp_path / "run"), "--threshold-rule", "youden"]
    )
    assert result.exit_code == 0, result.output
    assert "are not fitted: the run has no validation part" in result.stderr
    assert "the run has no validation part" in result.stdout
    card = json.loads((tmp_path / "run" / "model.json").read_text())
    assert card["thresholds"]["classes"]["digit 0"]["probability"] == 0.5


def test_how_options_are_read():
    assert split_class("mel=0.2") == ("mel", "0.2")
    assert split_class("0.2") == (None, "0.2")
    assert split_class("sensitivity>=0.95") == (None, "sensitivity>=0.95")
    assert split_class("mel=sensitivity>=0.95") == ("mel", "sensitivity>=0.95")
    assert given_thresholds(["0.3", "mel=0.2"]) == {None: 0.3, "mel": 0.2}
    with pytest.raises(UserError, match=r"'youden' is not a number.*there is --threshold-rule"):
        given_thresholds(["youden"])
    with pytest.raises(UserError, match=r"from 0 to 1, found 2; for 2 % write 0\.02"):
        given_thresholds(["mel=2"])


def test_options_change_only_what_they_name():
    recipe = recipe_from(
        tiny_settings(evaluation={"decisions": {"rule": "f1", "by_class": {"digit 0": "youden"}}})
    )
    assert with_decision_options(recipe, None, None, None) is recipe
    changed = with_decision_options(recipe, ["digit 1=0.2"], ["specificity>=0.9"], "temperature")
    decisions = changed.evaluation.decisions
    assert decisions.rule == "specificity>=0.9"
    assert decisions.by_class == {"digit 0": "youden", "digit 1": 0.2}
    assert decisions.calibration == "temperature"
    with pytest.raises(UserError, match="'yuoden' is no rule"):
        with_decision_options(recipe, None, ["yuoden"], None)
