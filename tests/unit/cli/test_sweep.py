"""``fedquilt sweep`` and ``run --seeds``, with the study file of the page."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import psutil
import pytest
from support.inline_pool import InlinePool
from support.markdown_pages import blocks
from typer.testing import CliRunner

from fedquilt.cli.main import app
from fedquilt.runs import parallel

(STUDY,) = blocks("docs/guides/sweeps.md", "toml")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "sweep.toml").write_text(STUDY, encoding="utf-8")
    monkeypatch.setattr(parallel, "RunPool", InlinePool)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def called(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


def test_the_study_of_the_page_ends_in_a_comparison(folder: Path):
    printed = called("sweep", "sweep.toml", "--out", "runs/sweep")
    assert "fedprox: 2 of 4 combinations are tried" in printed
    assert "Best settings, on validation images" in printed
    page = Path("runs/sweep/comparison.html")
    before = page.read_bytes()
    called("report", "runs/sweep")  # from comparison.json, to the same bytes
    assert page.read_bytes() == before
    found = json.loads(Path("runs/sweep/sweep.json").read_text())["methods"]
    compared = json.loads(Path("runs/sweep/comparison.json").read_text())
    assert [group["seeds"] for group in compared["groups"]] == [[0, 1], [0, 1]]
    for method, trials in found.items():
        assert len(trials["trials"]) == 2
        scores = [each["score"] for each in trials["trials"]]
        best = next(each for each in trials["trials"] if each["number"] == trials["best"])
        assert best["score"] == max(scores)
        run = Path(f"runs/sweep/compared/{method}-seed1")
        method_settings = json.loads((run / "recipe.json").read_text())["method"]
        assert method_settings["training"]["lr"] == best["settings"]["method.training.lr"]
        assert (run / "report.html").exists()
    again = called("sweep", "sweep.toml", "--out", "runs/sweep", "--json")
    assert '"groups"' in again


def test_optuna_tries_as_many_of_every_method(folder: Path):
    pytest.importorskip("optuna", reason="needs the extra optuna")
    changes = ("sweep.search=optuna", "sweep.trials=3", "rounds=1", "sweep.seeds=[0]")
    options = [word for change in changes for word in ("--set", change)]
    called("sweep", "sweep.toml", *options, "--out", "runs/sweep")
    found = json.loads(Path("runs/sweep/sweep.json").read_text())["methods"]
    assert {name: len(each["trials"]) for name, each in found.items()} == {
        "fedavg-pl": 3,
        "fedprox": 3,
    }


def test_storage_is_for_optuna(folder: Path):
    result = CliRunner().invoke(app, ["sweep", "sweep.toml", "--storage", "x.journal"])
    assert result.exit_code == 1
    assert "--storage is for sweep.search = 'optuna'" in " ".join(result.output.split())


def test_seeds_share_a_row(folder: Path):
    changes = ["--set", "data.train=60", "--set", "data.test=40", "--rounds", "1"]
    printed = called(
        "run", "digits-fedavg", *changes, "--seeds", "2", "--seed", "3", "--out", "out"
    )
    assert "fedavg 2" in printed
    seeds = [json.loads(Path(f"out/seed-{n}/recipe.json").read_text())["seed"] for n in (3, 4)]
    assert seeds == [3, 4]
    assert Path("out/seed-4/report.html").exists()
    assert Path("out/comparison.png").exists()


def test_seeds_and_resume_exclude_each_other(folder: Path):
    options = ["--seeds", "2", "--out", "out", "--resume"]
    result = CliRunner().invoke(app, ["run", "digits-fedavg", *options])
    assert result.exit_code == 1
    assert "leave out --resume" in " ".join(result.output.split())


def started(folder: Path, *arguments: str) -> psutil.Popen:
    command = [sys.executable, "-c", "from fedquilt.cli.main import main; main()", "sweep"]
    with (folder / "printed.txt").open("a") as file:
        return psutil.Popen([*command, *arguments], cwd=folder, stdout=file, stderr=file)


def kill_in_a_trial(sweep: psutil.Popen, trials: Path) -> None:
    """Kill the process in the middle of a trial; its workers must end by themselves."""
    deadline = time.monotonic() + 300
    while not list(trials.glob("*/*/*/history.jsonl")):
        assert time.monotonic() < deadline
        assert sweep.is_running()
        time.sleep(0.05)
    children = sweep.children(recursive=True)
    sweep.kill()
    sweep.wait()
    _, alive = psutil.wait_procs(children, timeout=30)
    assert not alive


@pytest.mark.slow
def test_a_killed_sweep_goes_on(tmp_path: Path):
    """With real processes: kill -9 in the middle, then the same command."""
    longer = STUDY.replace("rounds = 3", "rounds = 30")
    (tmp_path / "sweep.toml").write_text(longer, encoding="utf-8")
    command = ("sweep.toml", "--out", "out", "--workers", "2", "--devices", "cpu,cpu")
    kill_in_a_trial(started(tmp_path, *command), tmp_path / "out" / "trials")
    assert not (tmp_path / "out" / "sweep.json").exists()
    assert started(tmp_path, *command).wait() == 0, (tmp_path / "printed.txt").read_text()
    found = json.loads((tmp_path / "out" / "sweep.json").read_text())["methods"]
    assert [len(each["trials"]) for each in found.values()] == [2, 2]
    assert os.listdir(tmp_path / "out" / "compared")  # noqa: PTH208


@pytest.mark.slow
def test_two_machines_share_optunas_trials_and_one_is_killed(tmp_path: Path):
    """Two processes with folders of their own, as two machines with a disk in common."""
    pytest.importorskip("optuna", reason="needs the extra optuna")
    (tmp_path / "sweep.toml").write_text(STUDY, encoding="utf-8")
    changes = ("sweep.search=optuna", "sweep.trials=3", "rounds=10", "sweep.seeds=[0]")
    options = [word for change in changes for word in ("--set", change)]
    options += ["--storage", "trials.journal", "--workers", "1"]
    one, two = (started(tmp_path, "sweep.toml", *options, "--out", name) for name in ("one", "two"))
    kill_in_a_trial(one, tmp_path / "one" / "trials")
    again = started(tmp_path, "sweep.toml", *options, "--out", "one")
    assert (again.wait(), two.wait()) == (0, 0), (tmp_path / "printed.txt").read_text()
    begun = [path for name in ("one", "two") for path in tmp_path.glob(f"{name}/trials/*/*")]
    places = sorted((path.parent.name, path.name) for path in begun)  # no trial at both
    assert places == [
        (method, f"{number:04d}") for method in ("fedavg-pl", "fedprox") for number in range(3)
    ]
    for name in ("one", "two"):
        found = json.loads((tmp_path / name / "sweep.json").read_text())["methods"]
        for trials in found.values():
            assert [each["number"] for each in trials["trials"]] == [0, 1, 2]
            assert None not in [each["score"] for each in trials["trials"]]
    assert len(list(tmp_path.glob("*/compared"))) == 1
