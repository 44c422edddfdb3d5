"""Trackers get what the run folder holds, once, also after an interruption; off, nothing."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from support.tiny_runs import tiny_settings

from fedquilt.core.errors import UserError
from fedquilt.recipes.recipe import Recipe, recipe_from
from fedquilt.reports.run_with_report import run
from fedquilt.reports.trackers import TRACKERS, Held, Tracker
from fedquilt.reports.tracking import FILE, flat, numbers_of

COUNTED = "bytes_up"


def recipe(**changes: Any) -> Recipe:
    return recipe_from(tiny_settings("fedavg-pl") | changes)


class Noted(Tracker):
    """Keeps what it is told, by the name of the run, as a server would."""

    package = "json"
    server: dict[str, dict[str, Any]] = {}  # noqa: RUF012 (shared by all of them, as a server is)

    def begin(self, settings: Any) -> int:
        if self.key is None:
            self.key = f"run-{len(self.server)}"
            self.server[self.key] = {"settings": dict(settings), "rounds": [], "pictures": []}
        self.held = self.server[self.key]
        rounds = [number for number, numbers in self.held["rounds"] if "loss" in numbers]
        results = [number for number, numbers in self.held["rounds"] if "loss" not in numbers]
        return Held(max(rounds, default=0), max(results, default=0))

    def log(self, round_number: int, numbers: Any) -> None:
        self.held["rounds"].append((round_number, dict(numbers)))

    def add_picture(self, picture: Path, round_number: int) -> None:
        self.held["pictures"].append(picture.name)

    def close(self, *, is_complete: bool) -> None:
        self.held["complete"] = is_complete


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    monkeypatch.setattr(Noted, "server", {})
    monkeypatch.setitem(TRACKERS, "noted", Noted)
    return Noted.server


def test_settings_numbers_and_pictures_are_those_of_the_run(
    tmp_path: Path, server: dict[str, dict[str, Any]]
):
    finished = run(recipe(), tmp_path / "run", track=["noted"])
    (held,) = server.values()
    assert held["settings"]["method.name"] == "fedavg-pl"
    assert held["settings"]["recipe_hash"] == finished.result["recipe_hash"]
    history = finished.folder.history.read()
    assert [number for number, _ in held["rounds"]] == [1, 2, 2]  # the result comes last
    for record, (_, numbers) in zip(history, held["rounds"]):
        assert numbers["loss"] == record["loss"]
        assert numbers["metrics/macro_auc"] == record["metrics"]["macro_auc"]
    assert held["rounds"][-1][1]["result/macro_auc"] == finished.result["metrics"]["macro_auc"]
    drawn = sorted(path.name for path in finished.folder.pictures.glob("*.png"))
    assert held["pictures"] == drawn
    assert drawn
    assert held["complete"]


def test_resumed_run_adds_what_the_tracker_lacks(tmp_path: Path, server: dict[str, dict[str, Any]]):
    def stop(event: str, facts: dict[str, Any]) -> None:
        if event == "round":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):  # after the round is saved, before it is logged
        run(recipe(), tmp_path / "run", track=["noted"], observe=stop)
    assert server["run-0"]["rounds"] == []
    assert not server["run-0"]["complete"]
    run(recipe(), tmp_path / "run", track=["noted"], resume=True)
    assert list(server) == ["run-0"]  # the same one
    assert [number for number, _ in server["run-0"]["rounds"]] == [1, 2, 2]
    run(recipe(), tmp_path / "run", track=["noted"], resume=True)  # nothing is left to do
    assert [number for number, _ in server["run-0"]["rounds"]] == [1, 2, 2]
    run(recipe(rounds=3), tmp_path / "run", track=["noted"], resume=True)
    assert [number for number, _ in server["run-0"]["rounds"]] == [1, 2, 2, 3, 3]


def test_a_tracker_that_fails_stops_nothing(
    tmp_path: Path,
    server: dict[str, dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    def fail(self: Noted, round_number: int, numbers: Any) -> None:
        raise ConnectionError("no route to host")

    monkeypatch.setattr(Noted, "log", fail)
    finished = run(recipe(), tmp_path / "run", track=["noted"])
    assert finished.result["rounds"] == 2
    assert [each for each in caplog.messages if "no route to host" in each] == [
        "noted failed and gets no more of this run (no route to host); the run goes on, and "
        "--resume --track noted adds what it lacks"
    ]


def test_unknown_trackers_and_missing_packages_are_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with pytest.raises(UserError, match="did you mean 'tensorboard'"):
        run(recipe(), tmp_path / "run", track=["tensorbord"])
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match=r"pip install 'fedquilt\[wandb\]'"):
        run(recipe(), tmp_path / "run", track=["wandb"])
    assert not (tmp_path / "run").exists()


def test_without_trackers_nothing_is_imported_or_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for kind in TRACKERS.values():
        monkeypatch.setitem(sys.modules, kind.package, None)  # an import would fail
    run(recipe(rounds=1), tmp_path / "run")
    assert not (tmp_path / "run" / FILE).exists()
    assert not (tmp_path / "run" / "tensorboard").exists()


def test_names_of_nested_numbers():
    record = {"round": 3, "loss": None, "cohort": ["a"], "metrics": {"auc": 0.5, "bacc": None}}
    assert numbers_of(record | {"validation": {"by_client": {"a": {"auc": 1}}, "loss": 2}}) == {
        "metrics/auc": 0.5,
        "validation/loss": 2.0,
    }
    assert flat({"a": {"b": [1, 2], "c": 3}}) == {"a.b": "[1, 2]", "a.c": 3}


class FakeMlflow:
    """The part of MLflow's client that is used, with its rules: parameters are written once."""

    def __init__(self) -> None:
        self.runs: dict[str, dict[str, Any]] = {}
        self.experiments: list[str] = []

    def get_experiment_by_name(self, name: str) -> Any:
        found = name in self.experiments
        return types.SimpleNamespace(experiment_id=name) if found else None

    def create_experiment(self, name: str) -> str:
        self.experiments.append(name)
        return name

    def create_run(self, experiment: str, run_name: str) -> Any:
        key = f"{experiment}/{run_name}"
        self.runs[key] = {"params": {}, "metrics": [], "artifacts": [], "status": "RUNNING"}
        return types.SimpleNamespace(info=types.SimpleNamespace(run_id=key))

    def get_run(self, key: str) -> Any:
        found = {each[0]: each[1] for each in self.runs[key]["metrics"]}
        return types.SimpleNamespace(data=types.SimpleNamespace(metrics=found))

    def update_run(self, key: str, status: str) -> None:
        self.runs[key]["status"] = status

    def set_terminated(self, key: str, status: str) -> None:
        self.runs[key]["status"] = status

    def log_param(self, key: str, name: str, value: Any) -> None:
        assert name not in self.runs[key]["params"]
        self.runs[key]["params"][name] = value

    def log_batch(self, key: str, metrics: list[Any]) -> None:
        self.runs[key]["metrics"] += metrics

    def get_metric_history(self, key: str, name: str) -> list[Any]:
        return [
            types.SimpleNamespace(step=each[3])
            for each in self.runs[key]["metrics"]
            if each[0] == name
        ]

    def log_artifact(self, key: str, path: str, folder: str) -> None:
        assert Path(path).is_file()
        self.runs[key]["artifacts"].append(f"{folder}/{Path(path).name}")


def test_mlflow_gets_every_round_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fake = FakeMlflow()
    package, entities = types.ModuleType("mlflow"), types.ModuleType("mlflow.entities")
    package.MlflowClient = lambda: fake  # type: ignore[attr-defined]
    entities.Metric = lambda *values: values  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mlflow", package)
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "scenes")
    for rounds in (1, 2, 2):  # the second extends the first, the third has nothing to do
        run(recipe(rounds=rounds), tmp_path / "run", track=["mlflow"], resume=True)
    (key,) = fake.runs
    assert key == "scenes/run"
    held = fake.runs[key]
    assert held["params"]["method.name"] == "fedavg-pl"
    assert [each[3] for each in held["metrics"] if each[0] == COUNTED] == [1, 2]
    assert [each[3] for each in held["metrics"] if each[0] == "result/macro_auc"] == [1, 2]
    assert "pictures/annotation-map.png" in held["artifacts"]
    assert held["status"] == "FINISHED"
    assert json.loads((tmp_path / "run" / FILE).read_text()) == {"mlflow": key}


def test_weights_and_biases_goes_on_by_its_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    begun, logged, closed = [], [], []

    class FakeRun:
        id = "abc"
        summary: dict[str, Any] = {}  # noqa: RUF012 (kept from run to run, as by the server)

        def define_metric(self, name: str, step_metric: str) -> None:
            assert (name, step_metric) == ("*", "round")

        def log(self, numbers: dict[str, Any]) -> None:
            logged.append(numbers)
            self.summary.update(numbers)

        def finish(self, exit_code: int) -> None:
            closed.append(exit_code)

    def init(**options: Any) -> FakeRun:
        begun.append(options)
        return FakeRun()

    package = types.ModuleType("wandb")
    package.init, package.Image = init, Path  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", package)
    for rounds in (1, 2, 2):
        run(recipe(rounds=rounds), tmp_path / "run", track=["wandb"], resume=True)
    assert [each["id"] for each in begun] == [None, "abc", "abc"]
    assert begun[0]["config"]["rounds"] == 1
    assert [each["round"] for each in logged if COUNTED in each] == [1, 2]
    assert [each["round"] for each in logged if "result/macro_auc" in each] == [1, 2]
    assert any("pictures/annotation-map" in each for each in logged)
    assert closed == [0, 0, 0]


def test_tensorboard_reads_what_was_logged(tmp_path: Path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for rounds in (1, 2):
        run(recipe(rounds=rounds), tmp_path / "run", track=["tensorboard"], resume=True)
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    history = [
        json.loads(line) for line in (tmp_path / "run" / "history.jsonl").read_text().splitlines()
    ]
    logged = events.Scalars("loss")
    assert [each.step for each in logged] == [1, 2]
    assert [each.value for each in logged] == pytest.approx([each["loss"] for each in history])
    assert "annotation-map" in events.Tags()["images"]
