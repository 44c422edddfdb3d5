"""run(): an interrupted, killed or damaged run resumes to the same bits."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.whole_and_resumed import (
    METHODS,
    assert_same_run,
    recipe,
    stop_after,
)
from torch import Tensor

from fedquilt.data.batches import Batch
from fedquilt.data.client_data import ClientData
from fedquilt.engines import sequential as local
from fedquilt.losses.cross_entropy import masked_bce
from fedquilt.methods import METHODS as TABLE
from fedquilt.methods.fedavg import FedAvg
from fedquilt.runs import experiment
from fedquilt.runs.checkpoint import Checkpoints
from fedquilt.runs.experiment import run
from fedquilt.runs.run_folder import History, RunFolder
from fedquilt.training.method import Local, State


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
