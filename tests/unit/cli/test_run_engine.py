"""``fedquilt run``: engine options reach the engine, and none is ignored."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.tiny_runs import write_recipe
from typer.testing import CliRunner

import fedquilt.runs.experiment
from fedquilt.cli.main import app
from fedquilt.cli.options import engine_arguments
from fedquilt.core.errors import UserError
from fedquilt.engines.build import build_engine
from fedquilt.engines.options import EngineOptions
from fedquilt.runs.finished_run import read_run


@pytest.fixture(autouse=True)
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_recipe(Path("tiny.json"), "fedavg")


def run(*arguments: str):
    return CliRunner().invoke(app, ["run", "tiny.json", *arguments])


def test_options_reach_the_engine_and_results_are_those_of_the_sequential_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built = []

    def noted(*arguments: object, **settings: object) -> object:
        built.append(build_engine(*arguments, **settings))  # type: ignore[arg-type]
        return built[-1]

    monkeypatch.setattr(fedquilt.runs.experiment, "build_engine", noted)
    sgd = ("--set", "method.training.optimizer=sgd")
    options = ("--engine", "cuda-graph", "--slots", "2", "--no-channels-last", "--exact")
    for words in (
        (*sgd, "--out", "plain", "--engine", "sequential"),
        (*sgd, "--out", "own", *options),
    ):
        result = run(*words)
        assert result.exit_code == 0, result.output
    engine = built[1]
    assert (engine._slot_limit, engine._channels_last, engine._exact) == (2, False, True)
    assert len(engine._slots) == 2
    plain, own = read_run(Path("plain")), read_run(Path("own"))
    assert plain.result["metrics"] == own.result["metrics"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--slots", "4"), "slots: supported by the cuda-graph engine only, and this run uses"),
        (
            ("--engine", "sequential", "--exact", "--no-channels-last"),
            "channels_last, exact: supported by the cuda-graph engine",
        ),
        (("--engine", "recorder"), "--engine 'recorder' is unknown"),
        (
            ("--engine", "cuda-graph", "--exact", "--set", "method.training.precision=bfloat16"),
            "exact needs float32, and method.training.precision is 'bfloat16'",
        ),
    ],
)
def test_unsupported_options_are_refused(words: tuple[str, ...], message: str) -> None:
    result = run(*words, "--out", "first")
    assert result.exit_code != 0
    assert message in " ".join(result.output.split())
    assert not Path("first").exists()  # or the corrected command would be refused


def test_an_interrupted_run_suggests_resuming_with_the_same_options(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stopped(*arguments: object, **settings: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fedquilt.runs.round_recorder.run_rounds", stopped)
    result = run("--engine", "cuda-graph", "--slots", "3", "--out", "first")
    assert "--resume --engine cuda-graph --slots 3" in " ".join(result.output.split())


def test_only_options_that_differ_from_the_defaults_are_repeated() -> None:
    assert engine_arguments(EngineOptions()) == []
    assert engine_arguments(EngineOptions(slots=4, channels_last=False, exact=True)) == [
        *("--slots", "4", "--no-channels-last", "--exact")
    ]


def test_options_are_checked_in_python_too() -> None:
    with pytest.raises(UserError, match="slots must be at least 1, found 0"):
        EngineOptions(slots=0)
