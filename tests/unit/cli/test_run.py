"""``fedquilt run`` from a recipe: results, folders, interruption and resuming."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.tiny_runs import CLASSES, make_run, write_recipe
from typer.testing import CliRunner

import fedquilt.runs.round_recorder
from fedquilt.cli.main import app
from fedquilt.runs.finished_run import read_run


@pytest.fixture(autouse=True)
def in_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str):
    return CliRunner().invoke(app, ["run", *arguments])


def interrupt_after(rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate Ctrl-C during the next round."""
    all_rounds = fedquilt.runs.round_recorder.run_rounds

    def some_rounds(*arguments: object, **settings: object) -> Iterator[object]:
        for count, round_ in enumerate(all_rounds(*arguments, **settings)):
            if count == rounds:
                raise KeyboardInterrupt
            yield round_

    monkeypatch.setattr("fedquilt.runs.round_recorder.run_rounds", some_rounds)


def test_run_writes_all_files_and_names_the_folder():
    write_recipe(Path("tiny.json"))
    result = run("tiny.json")
    assert result.exit_code == 0, result.output
    folder = Path("runs/tiny-0")
    for name in ("result.json", "model.safetensors", "history.jsonl", "recipe.json"):
        assert (folder / name).is_file()
    drawn = sorted(path.name for path in (folder / "pictures").iterdir())
    assert drawn == ["annotation-map.png", "class-curves.png"]
    assert "0 labels filled in" in result.stdout  # so a picture of them would be empty
    assert all(name in result.stdout for name in CLASSES)
    assert "fedmlp on digits-mosaic" in (folder / "report.html").read_text(encoding="utf-8")
    assert (folder / "MODEL_CARD.md").is_file()
    assert f"fedquilt predict {folder} IMAGE" in result.stdout
    assert "round 1/2  loss" in result.stderr
    assert "round 2/2  loss" in result.stderr


def test_a_failing_report_does_not_lose_the_run(monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object) -> None:
        raise RuntimeError("no ink")

    monkeypatch.setattr("fedquilt.reports.html.run_report.run_content", fail)
    write_recipe(Path("tiny.json"))
    result = run("tiny.json")
    assert result.exit_code == 0, result.output
    assert "the report was not written (RuntimeError: no ink)" in result.stderr
    assert "fedquilt report runs/tiny-0" in result.stderr
    assert Path("runs/tiny-0/result.json").is_file()
    assert not Path("runs/tiny-0/report.html").exists()


def test_next_run_gets_a_number():
    write_recipe(Path("tiny.json"), "fedavg")
    for _ in range(3):
        assert run("tiny.json").exit_code == 0
    run("tiny.json", "--seed", "4")
    found = sorted(path.name for path in Path("runs").iterdir())
    assert found == ["tiny-0", "tiny-0-2", "tiny-0-3", "tiny-4"]


def test_settings_can_be_changed():
    write_recipe(Path("tiny.json"))
    result = run("tiny.json", "--set", "method.low=0.2", "--rounds", "1", "--seed", "5")
    assert "the warm-up never ends" in result.stderr
    recipe = read_run("runs/tiny-5").recipe
    assert (recipe.method.low, recipe.rounds, recipe.seed) == (0.2, 1, 5)


def test_shipped_recipe_is_run_by_its_name():
    settings = ["data.train=20", "data.test=20", "method.training.epochs=1"]
    changes = [part for setting in settings for part in ("--set", setting)]
    result = run("digits-fedavg", "--rounds", "1", "--out", "here", *changes)
    assert result.exit_code == 0, result.output
    assert read_run("here").result["method"] == "fedavg"


def test_stdout_holds_only_json():
    write_recipe(Path("tiny.json"), "local-only")
    result = run("tiny.json", "--json")
    printed = json.loads(result.stdout)
    stored = json.loads(Path("runs/tiny-0/result.json").read_text())
    assert printed["folder"] == "runs/tiny-0"
    names = [Path(path).name for path in printed["pictures"]]
    assert "class-curves.png" in names
    assert {key: printed[key] for key in stored} == stored


def test_interruption_says_what_is_saved_and_how_to_resume(monkeypatch: pytest.MonkeyPatch):
    write_recipe(Path("tiny.json"), rounds=3)
    interrupt_after(1, monkeypatch)
    stopped = run("tiny.json", "--out", "my run", "--cache", "kept")
    assert stopped.exit_code == 130
    assert "stopped; saved in my run: 1 of 3 rounds. Resume with:" in stopped.stderr
    assert "fedquilt run --out 'my run' --resume --cache kept" in stopped.stderr


def test_resumed_run_equals_an_uninterrupted_one(
    monkeypatch: pytest.MonkeyPatch, in_own_folder: Path
):
    write_recipe(Path("tiny.json"), rounds=3)
    with monkeypatch.context() as patched:
        interrupt_after(1, patched)
        assert run("tiny.json", "--out", "stopped").exit_code == 130
    resumed = run("--out", "stopped", "--resume")
    assert resumed.exit_code == 0, resumed.output
    assert "resuming after round 1" in resumed.stderr
    assert "round 1/3" not in resumed.stderr
    whole = make_run(in_own_folder / "whole", rounds=3)
    assert read_run("stopped").result["metrics"] == whole.result["metrics"]


def test_interruption_before_the_first_round(monkeypatch: pytest.MonkeyPatch):
    write_recipe(Path("tiny.json"))
    interrupt_after(0, monkeypatch)
    assert ": 0 of 2 rounds. Resume" in run("tiny.json").stderr

    def interrupted(*arguments: object, **settings: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fedquilt.runs.run_folder.RunFolder.begin", interrupted)
    stopped = run("tiny.json", "--out", "never")
    assert (stopped.exit_code, Path("never").exists()) == (130, False)
    assert "nothing was written" in stopped.stderr


def test_finished_run_can_be_resumed():
    write_recipe(Path("tiny.json"), "fedavg")
    run("tiny.json", "--out", "done")
    again = run("--out", "done", "--resume")
    assert again.exit_code == 0
    assert "all rounds are done" in again.stderr


def test_damaged_checkpoint_is_noted():
    write_recipe(Path("tiny.json"), "fedavg")
    run("tiny.json", "--out", "done")
    Path("done/checkpoints/round-000002.json").write_text("{")
    again = run("--out", "done", "--resume")
    assert "note: checkpoint round-000002.json is not used" in again.stderr
    assert "resuming after round 1" in again.stderr
