"""RoundRecorder: which rounds are evaluated and saved, and what their records hold."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.tiny_runs import tiny_settings

from fedquilt.engines.sequential import SequentialEngine
from fedquilt.recipes.recipe import recipe_from
from fedquilt.runs.round_recorder import RoundMetrics, RoundRecorder
from fedquilt.runs.run_folder import RunFolder
from fedquilt.runs.simulation import simulate
from fedquilt.training.method import State
from fedquilt.training.rounds import start_server

METRICS = RoundMetrics({"auc": 0.75}, {"digit 0": 0.5})


@pytest.fixture
def recorded(tmp_path: Path):
    """A recorder of five rounds: evaluated every two, saved every three."""
    recipe = recipe_from(tiny_settings("fedavg", rounds=5, evaluation={"every": 2}))
    simulation, folder, seen = simulate(recipe, tmp_path / "cache"), RunFolder(tmp_path), []

    def evaluate(server: State) -> RoundMetrics:
        seen.append(server)
        return METRICS

    recorder = RoundRecorder(
        recipe,
        simulation.task,
        folder,
        evaluate=evaluate,
        further_facts=lambda: {"missing": ["site-b"]},
        checkpoint_every=3,
    )
    engine = SequentialEngine(simulation.task, simulation.clients, states=recorder.checkpoints)
    server = start_server(recipe.method, simulation.task, engine)
    return folder, recorder, engine, server, seen


def test_the_last_round_is_always_evaluated_and_saved(recorded, monkeypatch) -> None:
    folder, recorder, engine, start, seen = recorded
    saved: list[int] = []
    monkeypatch.setattr(recorder.checkpoints, "save", lambda: saved.append(len(states)))
    states: list[State] = []
    for server, record in recorder.rounds(engine, start, 0, engine):
        states.append(server)
        assert record["missing"] == ["site-b"]
    history = folder.history.read()
    assert [record["round"] for record in history] == [1, 2, 3, 4, 5]
    evaluated = [record["round"] for record in history if record["metrics"] is not None]
    assert evaluated == [2, 4, 5]
    assert history[1]["per_class_auc"] == {"digit 0": 0.5}
    assert "per_class_auc" not in history[0]
    assert [server is states[done - 1] for server, done in zip(seen, evaluated)] == [True] * 3
    assert saved == [2, 4]  # before rounds 3 and 5 are handed on


def test_records_after_the_checkpoint_are_cut_off_on_resuming(recorded) -> None:
    folder, recorder, engine, start, _ = recorded
    for _, record in recorder.rounds(engine, start, 0, engine):
        if record["round"] == 4:
            break
    assert len(folder.history.read()) == 4
    restored, _ = recorder.checkpoints.restore()
    assert restored is not None
    assert restored.round_count == 3
    rounds = [record["round"] for _, record in recorder.rounds(engine, restored.server, 3, engine)]
    assert rounds == [4, 5]
    assert [record["round"] for record in folder.history.read()] == [1, 2, 3, 4, 5]
