"""The served round: chosen on validation, early stopping, longer runs, and stopped runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open
from support.tiny_runs import CLIENTS, tiny_settings

from fedquilt.core.errors import UserError
from fedquilt.recipes.recipe import Recipe, recipe_from
from fedquilt.runs.experiment import run
from fedquilt.runs.finished_run import Run, read_run
from fedquilt.runs.run_folder import RunFolder

TIMES = {"seconds"}


def recipe(method: str = "fedavg-pl", **changes: Any) -> Recipe:
    """Six rounds with so high a learning rate that the last is not the best."""
    training = {"batch_size": 10, "lr": 0.1} | changes.pop("training", {})
    settings = {
        "data": {"name": "digits-mosaic", "classes": 3, "train": 150, "test": 40},
        "method": {"name": method, "training": training},
        "validation": {"share": 0.3},
        "rounds": 6,
    }
    return recipe_from(tiny_settings() | settings | changes)


def finished(folder: Path, method: str = "fedavg-pl", **changes: Any) -> Run:
    run(recipe(method, **changes), folder)
    return read_run(folder)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return finished(tmp_path_factory.mktemp("whole") / "run")


def scores_by_round(of: Run) -> dict[int, float]:
    return {r["round"]: r["validation"]["site_auc"] for r in of.history if "validation" in r}


def untimed(of: Run) -> list[dict[str, Any]]:
    return [{k: v for k, v in record.items() if k not in TIMES} for record in of.history]


def assert_same(one: Run, two: Run) -> None:
    """Equal weights of best and last round, histories, scores and results."""
    for pattern in ("*.safetensors", "last/*.safetensors", "models/*", "scores/*"):
        files = sorted(path.relative_to(one.path) for path in one.path.glob(pattern))
        assert files == sorted(path.relative_to(two.path) for path in two.path.glob(pattern))
        for file in files:
            assert (one.path / file).read_bytes() == (two.path / file).read_bytes(), file
    assert untimed(one) == untimed(two)
    varying = {"seconds", "environment"}
    for key in one.result.keys() - varying:
        assert one.result[key] == two.result[key], key


def interrupted_after(number: int) -> Callable[[str, dict[str, Any]], None]:
    def observe(event: str, facts: dict[str, Any]) -> None:
        if event == "round" and facts["round"] == number:
            raise KeyboardInterrupt

    return observe


def test_the_best_round_is_served_and_tested_once(whole: Run):
    scores = scores_by_round(whole)
    best = max(scores, key=lambda number: scores[number])
    served = whole.result["served"]
    assert best < 6, "this test needs a run that gets worse"
    assert (served["model"], served["round"], served["value"]) == ("best", best, scores[best])
    assert f"round {best} of 6" in served["why"]
    assert all(record["metrics"] is None for record in whole.history)
    # The model of the best round, as a run of that length ends with.
    with safe_open(whole.path / "model.safetensors", "pt") as file:
        assert file.metadata() == {"round": str(best)}
    assert whole.scores.round == best
    images = whole.recipe.data.load(Path("unused")).test.images
    shorter = read_run(whole.path, "last").predict(images)
    assert not (shorter.logits == whole.predict(images).logits).all()


def test_a_run_that_ends_at_the_best_round_has_the_same_model(whole: Run, tmp_path: Path):
    best = whole.result["served"]["round"]
    short = finished(tmp_path / "short", rounds=best)
    images = whole.recipe.data.load(Path("unused")).test.images
    assert (short.predict(images).logits == whole.predict(images).logits).all()
    assert short.result["metrics"] == whole.result["metrics"]
    assert "last" not in json.loads(short.folder.model.read_text())
    same = read_run(short.path, "last").predict(images)
    assert (same.logits == short.predict(images).logits).all()


def test_without_validation_there_is_no_best_round(tmp_path: Path):
    plain = finished(tmp_path / "plain", validation={}, rounds=1)
    assert plain.result["served"]["model"] == "last"
    assert "no validation part" in plain.result["served"]["why"]
    with pytest.raises(UserError, match="has no best round"):
        _ = read_run(plain.path, "best").models.card


def test_an_interruption_changes_no_bit(whole: Run, tmp_path: Path):
    with pytest.raises(KeyboardInterrupt):
        run(recipe(), tmp_path / "run", observe=interrupted_after(4))
    run(recipe(), tmp_path / "run", resume=True)
    assert_same(read_run(tmp_path / "run"), whole)


@pytest.mark.parametrize("every", [1, 2])
def test_an_extended_run_is_a_run_planned_so_long(whole: Run, tmp_path: Path, every: int):
    """With every = 2 the shorter run validates its last round, the longer one does not."""
    short, changes = tmp_path / "short", {"evaluation": {"every": every}}
    run(recipe(rounds=3, **changes), short)
    assert read_run(short).result["served"]["trained"] == 3
    run(recipe(**changes), short, resume=True)
    planned = whole if every == 1 else finished(tmp_path / "planned", **changes)
    assert_same(read_run(short), planned)


def test_rounds_are_not_taken_back_and_planned_lengths_not_changed(tmp_path: Path):
    run(recipe(rounds=2), tmp_path / "run")
    with pytest.raises(UserError, match="has 2 rounds already"):
        run(recipe(rounds=1), tmp_path / "run", resume=True)
    cosine = {"training": {"schedule": "cosine"}}
    run(recipe(rounds=1, **cosine), tmp_path / "cosine")
    with pytest.raises(UserError, match=r"planned for 1 round.*cosine"):
        run(recipe(rounds=2, **cosine), tmp_path / "cosine", resume=True)


def test_early_stopping(whole: Run, tmp_path: Path):
    patient = {"share": 0.3, "patience": 1}
    early = finished(tmp_path / "early", validation=patient, rounds=20)
    scores, served = scores_by_round(early), early.result["served"]
    assert served["stopped_early"]
    assert served["trained"] == early.result["rounds"] == len(scores) < 20
    assert "no gain of 0.001 after 1 further validations" in served["why"]
    last_gain = len(scores) - 1
    assert max(scores.values()) < scores[last_gain] + 0.001
    again = early.result
    run(recipe(validation=patient, rounds=20), early.path, resume=True)
    assert read_run(early.path).result | {"seconds": 0} == again | {"seconds": 0}
    # Without patience it goes on, to the bits of a run that never stopped.
    run(recipe(), early.path, resume=True)
    assert_same_but_patience(read_run(early.path), whole)


def assert_same_but_patience(one: Run, two: Run) -> None:
    assert untimed(one) == untimed(two)
    assert (one.path / "model.safetensors").read_bytes() == (
        two.path / "model.safetensors"
    ).read_bytes()


def test_each_client_with_a_model_of_its_own_has_its_own_round(tmp_path: Path):
    own = finished(tmp_path / "own", "local-only", validation={"share": 0.3, "metric": "loss"})
    rounds = own.result["served"]["rounds"]
    by_client = {name: {} for name in CLIENTS}
    for record in own.history:
        for name, found in record["validation"]["by_client"].items():
            by_client[name][record["round"]] = found["loss"]
    assert rounds == {name: min(found, key=found.get) for name, found in by_client.items()}
    assert own.result["served"]["round"] is None
    assert "own round with the smallest cross-entropy" in own.result["served"]["why"]


@pytest.mark.parametrize("method", ["fedavg-pl", "local-only"])
def test_a_stopped_run_is_used_at_its_last_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, method: str
):
    path = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run(recipe(method, validation={}), path, observe=interrupted_after(2))
    stopped = read_run(path)
    client = CLIENTS[0] if method == "local-only" else None
    images = recipe().data.load(Path("unused")).test.images[:5]
    found = stopped.predict(images, client=client)
    assert "is not finished: 2 of 6 rounds are saved" in caplog.text
    assert stopped.models.card["served"]["why"].endswith("stopped after round 2 of 6")
    short = finished(tmp_path / "short", method, validation={}, rounds=2)
    assert (short.predict(images, client=client).logits == found.logits).all()
    # A later checkpoint is used the next time, and the finished run in the end.
    with pytest.raises(KeyboardInterrupt):
        run(recipe(method, validation={}), path, resume=True, observe=interrupted_after(3))
    assert read_run(path).models.card["served"]["round"] == (3 if client is None else None)
    run(recipe(method, validation={}), path, resume=True)
    assert read_run(path).models.card["served"]["trained"] == 6


def test_a_run_that_is_going_on_or_has_no_round_cannot_be_used(tmp_path: Path):
    path = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run(recipe(validation={}), path, observe=interrupted_after(1))
    folder = RunFolder(path)
    with (
        folder.begin(folder.read_recipe(), resume=True),
        pytest.raises(UserError, match="another process is running"),
    ):
        _ = read_run(path).models.card
    for checkpoint in folder.checkpoints.glob("round-*.json"):
        checkpoint.unlink()
    with pytest.raises(UserError, match="before its first round was saved"):
        _ = read_run(path).models.card
