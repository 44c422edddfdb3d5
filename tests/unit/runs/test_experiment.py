"""run(): the files of a run, and that an interruption does not change them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.data.allocation import Allocation
from fedquilt.data.batches import Batch
from fedquilt.data.client_data import ClientData
from fedquilt.data.source import Splits
from fedquilt.engines import sequential as local
from fedquilt.losses.cross_entropy import masked_bce
from fedquilt.methods import METHODS as TABLE
from fedquilt.methods.fedavg import FedAvg
from fedquilt.recipes.recipe import Recipe, recipe_from
from fedquilt.runs import experiment
from fedquilt.runs.checkpoint import Checkpoints
from fedquilt.runs.experiment import run
from fedquilt.runs.run_folder import History, RunFolder
from fedquilt.training.method import Local, State

METHODS = {
    "fedavg": {"server_step": {"momentum": 0.5}},
    "fedmlp": {
        "warmup_rounds": 1,
        "negative_share": 0.3,
        "positive_share": 0.3,
        "adaptive_threshold": False,
    },
    "scaffold": {"training": {"keep_optimizer": True}},
    "local-only": {},
}
Observer = Callable[[str, dict[str, Any]], None]


def recipe(method: str = "fedmlp", **changes: Any) -> Recipe:
    settings = {"name": method} | METHODS.get(method, {})
    settings["training"] = {"batch_size": 16, "lr": 0.01} | settings.get("training", {})
    return recipe_from(
        {
            "data": {"name": "digits-mosaic", "train": 60, "test": 40, "classes": 3},
            "partition": {"name": "iid", "clients": 3},
            "annotation": {"name": "missing", "missing": 2, "one_to_one": True},
            "views": {"weak": "plain"},
            "method": settings,
            "rounds": 4,
        }
        | changes
    )


@pytest.fixture(scope="module")
def splits(tmp_path_factory: pytest.TempPathFactory) -> Splits:
    return recipe().data.load(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def whole(splits: Splits, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A FedMLP run without interruption."""
    return run(recipe(), tmp_path_factory.mktemp("whole") / "run", splits=splits)


def stop_after(round_count: int) -> Observer:
    """Return a callback that simulates Ctrl-C after the given round."""

    def observe(event: str, facts: dict[str, Any]) -> None:
        if event == "round" and facts["round"] == round_count:
            raise KeyboardInterrupt

    return observe


def result_of(folder: RunFolder) -> dict[str, Any]:
    return json.loads(folder.result.read_text())


def untimed(folder: RunFolder) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in record.items() if key != "seconds"}
        for record in folder.history.read()
    ]


def assert_same_run(one: RunFolder, two: RunFolder) -> None:
    """Check for bitwise equal models, equal histories and equal results."""
    files = {path.relative_to(one.path) for path in one.path.rglob("model*.safetensors")}
    files |= {path.relative_to(one.path) for path in (one.path / "models").glob("*")}
    assert files
    for file in files:
        assert (one.path / file).read_bytes() == (two.path / file).read_bytes()
    assert untimed(one) == untimed(two)
    varying = {"seconds", "environment"}
    first, second = result_of(one), result_of(two)
    assert first.keys() == second.keys()
    for key in first.keys() - varying:
        assert first[key] == second[key], key


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


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("every", [1, 3])
def test_an_interrupted_and_resumed_run_equals_a_whole_one(splits, tmp_path, method, every):
    chosen = recipe(method, checkpoint_every=every, cohort_size=2)
    expected = run(chosen, tmp_path / "expected", splits=splits)
    with pytest.raises(KeyboardInterrupt):
        run(chosen, tmp_path / "run", splits=splits, observe=stop_after(2))
    assert not RunFolder(tmp_path / "run").result.exists()
    begun = []
    resumed = run(
        chosen,
        tmp_path / "run",
        splits=splits,
        resume=True,
        observe=lambda event, facts: begun.append(facts) if event == "begin" else None,
    )
    assert begun[0]["first_round"] == 2  # no round is repeated, whatever checkpoint_every is
    assert_same_run(expected, resumed)


def test_a_run_may_be_interrupted_after_every_round(whole, splits, tmp_path):
    for round_count in range(1, 5):
        with pytest.raises(KeyboardInterrupt):
            run(
                recipe(),
                tmp_path / "run",
                splits=splits,
                resume=round_count > 1,
                observe=stop_after(round_count),
            )
    assert_same_run(whole, run(recipe(), tmp_path / "run", splits=splits, resume=True))


INTERRUPTED = {  # where Ctrl-C interrupts, and the number of that call in round 3
    "a client's training": (local, "run_client", 8),  # the second of three clients
    "evaluation": (experiment, "assess", 3),
    "advancing": (Checkpoints, "advance", 3),
    "recording": (History, "append", 3),
    "saving": (Checkpoints, "save", 3),
}


@pytest.mark.parametrize("place", INTERRUPTED)
def test_an_interruption_at_any_place_changes_nothing(whole, splits, tmp_path, monkeypatch, place):
    owner, name, fatal = INTERRUPTED[place]
    true, calls = getattr(owner, name), 0

    def interrupted(*given: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == fatal:
            raise KeyboardInterrupt
        return true(*given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(recipe(), tmp_path / "run", splits=splits)
    assert_same_run(whole, run(recipe(), tmp_path / "run", splits=splits, resume=True))


def test_interrupting_clients_on_several_cores_changes_nothing(
    whole, splits, tmp_path, monkeypatch
):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)  # of which each client gets one
    settings = {"splits": splits, "engine": "threaded"}
    with pytest.raises(KeyboardInterrupt):
        run(recipe(), tmp_path / "run", observe=stop_after(2), **settings)
    assert_same_run(whole, run(recipe(), tmp_path / "run", resume=True, **settings))


def test_a_killed_process_resumes_from_its_last_checkpoint(whole, splits, tmp_path, monkeypatch):
    """A killed process cannot save; rounds after the last checkpoint are repeated."""
    with monkeypatch.context() as patch:
        true = Checkpoints.save
        saves = []

        def save_twice(self: Checkpoints) -> None:
            saves.append(None)
            if len(saves) <= 2:
                true(self)

        patch.setattr(Checkpoints, "save", save_twice)
        with pytest.raises(KeyboardInterrupt):
            run(recipe(), tmp_path / "run", splits=splits, observe=stop_after(3))
    folder = RunFolder(tmp_path / "run")
    assert len(folder.history.read()) == 3
    with (folder.path / "history.jsonl").open("a") as file:
        file.write('{"round": 4, "los')
    assert_same_run(whole, run(recipe(), tmp_path / "run", splits=splits, resume=True))


def newest_manifest(folder: RunFolder) -> Path:
    return max(folder.checkpoints.glob("round-*.json"))


def cut_manifest(folder: RunFolder) -> None:
    path = newest_manifest(folder)
    path.write_bytes(path.read_bytes()[:-20])


def alter_server(folder: RunFolder) -> None:
    key = json.loads(newest_manifest(folder).read_text())["server"]
    path = folder.checkpoints / "objects" / f"{key}.safetensors"
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


def empty_newest_client_states(folder: RunFolder) -> None:
    newest, older = (
        set(json.loads(path.read_text())["packs"])
        for path in sorted(folder.checkpoints.glob("round-*.json"), reverse=True)
    )
    assert newest - older
    for name in newest - older:
        (folder.checkpoints / name).write_bytes(b"")


def remove_everything(folder: RunFolder) -> None:
    shutil.rmtree(folder.checkpoints)


def empty_all_objects(folder: RunFolder) -> None:
    for path in (
        *(folder.checkpoints / "objects").iterdir(),
        *folder.checkpoints.glob("*.pack"),
    ):
        path.write_bytes(b"")


@pytest.mark.parametrize(
    ("damage", "first_round", "notice_count"),
    [
        (cut_manifest, 2, 1),
        (alter_server, 2, 1),
        (empty_newest_client_states, 2, 1),
        (remove_everything, 0, 0),
        (empty_all_objects, 0, 2),
    ],
)
def test_a_damaged_checkpoint_costs_rounds_not_results(
    whole, splits, tmp_path, damage, first_round, notice_count
):
    with pytest.raises(KeyboardInterrupt):
        run(recipe(), tmp_path / "run", splits=splits, observe=stop_after(3))
    damage(RunFolder(tmp_path / "run"))
    events: list[tuple[str, dict[str, Any]]] = []
    resumed = run(
        recipe(),
        tmp_path / "run",
        splits=splits,
        resume=True,
        observe=lambda event, facts: events.append((event, facts)),
    )
    notices = [facts["text"] for event, facts in events if event == "notice"]
    assert len(notices) == notice_count
    assert all("is not used" in notice for notice in notices)
    (begin,) = [facts for event, facts in events if event == "begin"]
    assert begin["first_round"] == first_round
    assert_same_run(whole, resumed)
    assert Checkpoints(resumed.checkpoints).restore()[1] == []  # its new checkpoints are valid


def test_resuming_a_finished_run_changes_nothing(whole, splits, tmp_path):
    copy = shutil.copytree(whole.path, tmp_path / "run")
    RunFolder(copy).result.unlink()  # as if it was killed before writing the result
    assert_same_run(whole, run(recipe(), copy, splits=splits, resume=True))


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


@dataclass(frozen=True, kw_only=True)
class Forgetful(FedAvg):
    """A method without client state; only the engine stores the clients' optimizers."""

    def init_client(self, data: ClientData) -> State:
        return {}

    def loss(self, local: Local, batch: Batch) -> Tensor:
        return masked_bce(local.model(batch.views[0]).logits, batch.labels, batch.known)


def test_a_method_without_client_state_resumes(splits, tmp_path, monkeypatch):
    monkeypatch.setitem(TABLE, "forgetful", f"{__name__}:Forgetful")
    chosen = recipe("forgetful")
    training = replace(chosen.method.training, keep_optimizer=True)
    chosen = replace(chosen, method=replace(chosen.method, training=training))
    expected = run(chosen, tmp_path / "expected", splits=splits)
    with pytest.raises(KeyboardInterrupt):
        run(chosen, tmp_path / "run", splits=splits, observe=stop_after(2))
    assert_same_run(expected, run(chosen, tmp_path / "run", splits=splits, resume=True))


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
