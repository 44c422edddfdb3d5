"""Mistakes with ``fedquilt run``: one red line, exit code 1, no traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.tiny_runs import make_run, write_recipe
from typer.testing import CliRunner

from fedquilt.cli.main import app


@pytest.fixture(autouse=True)
def in_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def complaint(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["run", *arguments])
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    return result.stderr


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("method.name=fedmpl", "unknown method 'fedmpl'; did you mean 'fedmlp'?"),
        ("method.warmup_round=3", "has no field 'warmup_round'; did you mean 'warmup_rounds'?"),
        ("method.training.lr=fast", "recipe.method.training.lr must be float, found 'fast'"),
        ("round=3", "recipe has no field 'round'; did you mean 'rounds'?"),
        ("rounds=0", "rounds must be at least 1"),
        ("rounds", "--set needs PLACE=VALUE"),
    ],
)
def test_wrong_settings(change: str, message: str):
    write_recipe(Path("tiny.json"))
    assert message in complaint("tiny.json", "--set", change)
    assert not Path("runs").exists()


def test_missing_recipe():
    assert "there is no recipe file nowhere.toml" in complaint("nowhere.toml")
    assert "did you mean 'digits-fedmlp'" in complaint("digit-fedmlp")


@pytest.mark.parametrize(("name", "kind"), [("bad.toml", "TOML"), ("bad.json", "JSON")])
def test_damaged_recipe(name: str, kind: str):
    Path(name).write_text("rounds = = 3")
    assert f"the recipe {name} is not valid {kind}" in complaint(name)


def test_nothing_to_run():
    message = complaint()
    assert "fedquilt list recipes" in message
    assert "--data FOLDER --labels CSV" in message


def test_existing_folder_without_resume():
    write_recipe(Path("tiny.json"), "fedavg")
    make_run(Path("taken"), "fedavg")
    assert "taken already holds a run" in complaint("tiny.json", "--out", "taken")


def test_resume_with_another_recipe():
    make_run(Path("begun"), "fedavg")
    write_recipe(Path("other.json"), "fedavg", rounds=7, seed=1)
    message = complaint("other.json", "--out", "begun", "--resume")
    assert "holds a run of another recipe; it differs in rounds, seed." in message
    assert "has 2 rounds already" in complaint("--out", "begun", "--resume", "--rounds", "1")
    changed = complaint("--out", "begun", "--resume", "--set", "method.mu=3")
    assert "has no field 'mu'" in changed


def test_resume_where_there_is_no_run():
    assert "holds no recipe.json" in complaint("--out", "nowhere", "--resume")
    assert "--resume needs --out" in complaint("digits-fedmlp", "--resume")


def test_unknown_device():
    assert "--device must be cpu or cuda, found 'gpu'" in complaint(
        "digits-fedavg", "--device", "gpu"
    )


def test_own_data_options_beside_a_recipe():
    message = complaint("digits-fedmlp", "--size", "32", "--grey")
    assert message.startswith("error: --size, --grey: for own data")
