"""The alarm names the round and the class, and the round is not kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.tiny_runs import tiny_settings

from fedquilt.core.errors import UserError
from fedquilt.recipes.recipe import recipe_from
from fedquilt.runs.alarm import Alarm
from fedquilt.runs.experiment import run


def record(number: int, first: float, second: float | None) -> dict[str, object]:
    return {"round": number, "per_class_auc": {"one": first, "two": second}}


def test_a_fall_below_the_best_round_is_named() -> None:
    alarm = Alarm(0.05, [record(1, 0.80, None), record(2, 0.90, 0.7)])
    alarm.check(record(3, 0.86, 0.7))
    with pytest.raises(UserError, match=r"round 4: the AUC of one .* 0\.840 from 0\.900 in round"):
        alarm.check(record(4, 0.84, 0.9))


def test_validation_images_come_before_test_images() -> None:
    alarm = Alarm(0.05, [{"round": 1, "validation": {"per_class_auc": {"one": 0.9}}}])
    with pytest.raises(UserError, match="alarm in round 2"):
        alarm.check({"round": 2, "validation": {"per_class_auc": {"one": 0.8}}})


def test_no_alarm_unless_it_is_asked_for() -> None:
    Alarm(None, [record(1, 0.9, 0.9)]).check(record(2, 0.1, 0.1))


def test_a_run_stops_and_keeps_the_rounds_before(tmp_path: Path) -> None:
    """With steps this large the model jumps about, so that a class soon falls by a thousandth."""
    settings = tiny_settings("fedavg-pl", rounds=12, robust={"alarm": 0.001})
    settings["method"]["training"] = {"batch_size": 10, "lr": 0.03}
    with pytest.raises(UserError, match=r"alarm in round \d+"):
        run(recipe_from(settings), tmp_path / "run")
    history = (tmp_path / "run" / "history.jsonl").read_text().splitlines()
    assert 0 < len(history) < 12
