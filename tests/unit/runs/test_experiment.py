"""run(): the files of a run, and that an interruption does not change them."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file
from support.whole_and_resumed import (
    assert_same_run,
    recipe,
    result_of,
    stop_after,
)

from fedquilt.core.errors import UserError
from fedquilt.data.allocation import Allocation
from fedquilt.data.source import Splits
from fedquilt.recipes.recipe import recipe_from
from fedquilt.runs.experiment import run
from fedquilt.runs.run_folder import RunFolder


def test_the_files_of_a_run(whole):
    assert whole.read_recipe() == recipe()
    card = json.loads(whole.model.read_text())
    assert card["classes"] == ["digit 0", "digit 1", "digit 2"]
    assert card["files"] == {"global": "model.safetensors"}
    assert card["image_shape"] == [1, 16, 16]
    weights = load_file(whole.path / "model.safetensors")
    assert weights["head.weight"].shape == (3, 64)
    assert all(bool(tensor.isfinite().all()) for tensor in weights.values())
    assert not list(whole.path.rglob("*.partial"))


def test_the_history_of_a_run(whole):
    records = whole.history.read()
    assert [record["round"] for record in records] == [1, 2, 3, 4]
    for record in records:
        assert record["cohort"] == ["client-0", "client-1", "client-2"]
        assert record["loss"] > 0
        assert set(record["per_class_auc"]) == {"digit 0", "digit 1", "digit 2"}
        assert 0 <= record["metrics"]["macro_auc"] <= 1
        assert record["bytes_up"] > 0
        assert record["bytes_down"] > 0
        assert set(record["pseudo_labels"]) == {"digit 0", "digit 1", "digit 2"}
    tagged = [
        sum(each["positives"] + each["negatives"] for each in record["pseudo_labels"].values())
        for record in records
    ]
    assert tagged == sorted(tagged)  # a pseudo-label is never removed
    assert tagged[-1] > 0


def test_the_result_of_a_run(whole):
    result, records = result_of(whole), whole.history.read()
    assert result["method"] == "fedmlp"
    assert (result["seed"], result["rounds"]) == (0, 4)
    assert result["recipe_hash"] == recipe().hash
    assert result["partition_hash"] == Allocation.load(whole.partition).hash
    assert result["metrics"] == records[-1]["metrics"]
    assert result["pseudo_labels"] == records[-1]["pseudo_labels"]
    assert list(result["reports"]) == ["global"]
    for key in ("bytes_up", "bytes_down", "seconds"):
        assert result[key] == sum(record[key] for record in records)
    assert result["environment"]["device"] == "cpu"


def test_a_run_is_reproducible(whole, splits, tmp_path):
    assert_same_run(whole, run(recipe(), tmp_path / "run", splits=splits))


def test_the_callback_receives_all_events(splits, tmp_path):
    events = []
    run(
        recipe("fedavg", rounds=2),
        tmp_path / "run",
        splits=splits,
        observe=lambda event, facts: events.append((event, facts)),
    )
    assert [event for event, _ in events] == ["begin", "round", "round", "end"]
    begin = {"first_round": 0, "rounds": 2, "clients": 3, "classes": 3}
    assert begin.items() <= events[0][1].items()
    assert events[1][1]["round"] == 1
    assert events[3][1] == result_of(RunFolder(tmp_path / "run"))


def test_evaluation_every_few_rounds_and_always_at_the_end(splits, tmp_path):
    settings = recipe("fedavg", rounds=5, evaluation={"every": 2})
    folder = run(settings, tmp_path / "run", splits=splits)
    evaluated = [record["metrics"] is not None for record in folder.history.read()]
    assert evaluated == [False, True, False, True, True]


def test_a_run_is_not_resumed_without_resume(whole, splits):
    with pytest.raises(UserError, match="continue it with --resume"):
        run(recipe(), whole.path, splits=splits)


@pytest.mark.parametrize("method", ["fedavg", "fedmlp"])
def test_a_run_is_not_resumed_on_other_data(splits, tmp_path, method):
    """The recipe is the same, but its sample indices now mean other images."""
    with pytest.raises(KeyboardInterrupt):
        run(recipe(method), tmp_path / "run", splits=splits, observe=stop_after(2))
    fewer = Splits(train=splits.train.select(range(30)), test=splits.test)
    with pytest.raises(UserError, match="data"):
        run(recipe(method), tmp_path / "run", splits=fewer, resume=True)


def test_personal_models_are_reported_per_client(splits, tmp_path):
    folder = run(recipe("local-only"), tmp_path / "run", splits=splits)
    result = result_of(folder)
    assert len(result["reports"]) == 3
    card = json.loads(folder.model.read_text())
    assert set(card["files"]) == set(result["reports"])
    assert all((folder.path / file).exists() for file in card["files"].values())
    assert result["spread_over_clients"]["macro_auc"] > 0
    values = [report["averages"]["macro_auc"] for report in result["reports"].values()]
    assert result["metrics"]["macro_auc"] == pytest.approx(sum(values) / 3)


def test_a_run_does_not_touch_the_default_generator(splits, tmp_path):
    before = torch.get_rng_state()
    run(recipe("fedavg", rounds=1), tmp_path / "run", splits=splits)
    assert torch.equal(before, torch.get_rng_state())


def test_a_recipe_written_by_a_run_runs_again(whole, splits, tmp_path):
    again = recipe_from(json.loads(whole.recipe.read_text()))
    assert_same_run(whole, run(again, tmp_path / "run", splits=splits))
