"""``fedquilt reproduce`` on a small digits dataset."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedquilt.cli.main import app
from fedquilt.recipes.papers import find_table
from fedquilt.runs.reproduction import plan_runs

TINY = (
    *("fedmlp/table1", "--data", "digits", "--rounds", "2", "--workers", "1"),
    *("--cells", "fedavg,fedmlp/missing-1,missing-4"),
    *("--set", "data.train=40", "--set", "data.test=60"),
)
CELLS = [f"{row}--missing-{level}--seed0" for row in ("fedavg", "fedmlp") for level in (1, 4)]


def reproduce(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["reproduce", *arguments])


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    out = tmp_path_factory.mktemp("reproduce") / "out"
    return out, reproduce(*TINY, "--out", str(out))


def set_bacc(out: Path, row: str, share: float) -> None:
    for path in (out / "cells").glob(f"{row}--*/result.json"):
        result = json.loads(path.read_text())
        result["metrics"]["bacc"] = share
        path.write_text(json.dumps(result))


def test_cells_are_run_and_compared_with_the_paper(first: tuple[Path, Any]):
    out, result = first
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert "on digits: 4 runs of 2 rounds" in result.stderr
    assert "Criterion: FedMLP is among the best 2 by average BACC: " in result.stdout
    assert "  ICH  " in result.stdout
    assert sorted(path.name for path in (out / "cells").iterdir()) == CELLS
    summary = json.loads((out / "table.json").read_text())
    assert summary["command"] == (
        "fedquilt reproduce fedmlp/table1 --data digits --seeds 1 "
        "--cells fedavg,fedmlp/missing-1,missing-4 --rounds 2 "
        "--set data.train=40 --set data.test=60 --device cpu"
    )
    assert [row["row"] for row in summary["rows"]] == ["fedavg", "fedmlp"]
    assert summary["rows"][1]["columns"]["missing-4"]["bacc"]["published"]["ICH"] == 80.07
    assert (out / "table.csv").exists()
    assert (out / "table.png").exists()
    assert len(summary["tests"]) == 2  # a column each
    for each in summary["tests"]:
        (test,) = each["tests"]  # the method itself comes first
        assert (test["one"], test["other"], test["seeds"]) == ("FedMLP", "FedAvg", 1)
        assert test["patients"] == 60
        assert test["macro_auc"]["low"] < test["macro_auc"]["value"] < test["macro_auc"]["high"]
    assert "FedMLP is significantly ahead by macro-AUC in" in result.stdout.replace("\n", " ")
    page = (out / "report.html").read_bytes()
    assert CliRunner().invoke(app, ["report", str(out)]).exit_code == 0
    assert (out / "report.html").read_bytes() == page


def test_checkpoints_of_finished_cells_are_deleted(first: tuple[Path, Any]):
    assert not list(first[0].glob("cells/*/checkpoints"))


@pytest.mark.parametrize(("ours", "theirs", "code"), [(0.9, 0.6, 0), (0.6, 0.9, 1)])
def test_finished_cells_are_kept_and_the_exit_code_follows_the_criterion(
    first: tuple[Path, Any],
    monkeypatch: pytest.MonkeyPatch,
    ours: float,
    theirs: float,
    code: int,
):
    out, _ = first
    monkeypatch.delattr("fedquilt.runs.reproduction.run_all")  # nothing is to be run
    set_bacc(out, "fedmlp", ours)
    set_bacc(out, "fedavg", theirs)
    result = reproduce(*TINY, "--out", str(out), "--json")
    assert "4 of them finished before" in result.stderr
    assert result.exit_code == code
    criterion = json.loads(result.stdout)["criterion"]
    assert criterion["holds"] is (code == 0)


def test_unjudged_cells_do_not_fail(first: tuple[Path, Any]):
    one = [word.replace("fedavg,fedmlp/", "fedavg/") for word in TINY]
    result = reproduce(*one, "--out", str(first[0]))
    assert result.exit_code == 0
    assert "cannot be judged" in result.stdout


def test_other_settings_in_the_same_folder_are_refused(first: tuple[Path, Any]):
    result = reproduce(*TINY, "--out", str(first[0]), "--set", "method.training.lr=0.1")
    assert result.exit_code == 1
    assert "holds a run of another recipe; it differs in method.training.lr" in result.stderr


def test_a_bound_that_ignores_the_columns_runs_once(tmp_path: Path):
    result = reproduce(
        *("fednca-ml/table1", "--data", "digits", "--rounds", "1", "--workers", "1"),
        *("--cells", "centralised", "--set", "data.train=400", "--set", "data.test=60"),
        *("--out", str(tmp_path), "--json"),
    )
    assert "on digits: 1 run of 1 round" in result.stderr
    assert [path.name for path in (tmp_path / "cells").iterdir()] == [
        "centralised--beta-0.5--seed0"
    ]
    columns = json.loads(result.stdout)["rows"][0]["columns"]
    assert columns["beta-0.1"]["macro_auc"]["mean"] == columns["beta-0.5"]["macro_auc"]["mean"]


def test_a_shared_run_does_not_depend_on_the_cells_chosen(tmp_path: Path):
    table = find_table("fednca-ml/table1", "digits")
    cells = table.cells(["centralised,fedavg/beta-0.1"])
    names = [run.folder.path.name for run in plan_runs(table, cells, [0], tmp_path)]
    assert names == ["centralised--beta-0.5--seed0", "fedavg--beta-0.1--seed0"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["fedmlp/tabel1"],
            "unknown table or figure 'fedmlp/tabel1'; did you mean 'fedmlp/table1'?",
        ),
        (["fedmlp/table1", "--data", "cifar"], "has no data called 'cifar'; did you mean"),
        (["fedmlp/table1"], "fedmlp/table1 on ich needs --from FOLDER: the folder of RSNA's"),
        (
            ["fedmlp/table1", "--data", "digits", "--cells", "fedml"],
            "--cells: no row is called 'fedml'; did you mean 'fedmlp'?",
        ),
        (
            ["fedmlp/table1", "--data", "digits", "--set", "method.training.lrr=1"],
            "recipe.method.training has no field 'lrr'; did you mean 'lr'?",
        ),
    ],
)
def test_mistakes_are_explained(arguments: list[str], message: str, tmp_path: Path):
    result = reproduce(*arguments, "--out", str(tmp_path / "out"))
    assert result.exit_code == 1
    assert message in result.stderr
    assert not (tmp_path / "out").exists()


def test_failed_cells_are_named_and_the_others_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from fedquilt.runs.experiment import run

    def run_all(recipes: Any, *, cache: Path, progress: Any, failure: Any, **options: Any) -> None:
        for folder, recipe in recipes.items():
            if "fedavg-" in folder.name:
                failure(folder, ValueError("its update has NaN"))
            else:
                run(recipe, folder, cache=cache)
        progress(1, 1)

    monkeypatch.setattr("fedquilt.runs.reproduction.run_all", run_all)
    result = reproduce(*TINY, "--out", str(tmp_path / "out"))
    assert result.exit_code == 1
    assert "fedavg--missing-1--seed0 failed: its update has NaN" in result.stderr
    assert "FedMLP" in result.stdout


def test_list_tables_names_data_rows_columns_and_criterion():
    result = CliRunner().invoke(app, ["list", "tables", "fednca-ml/table1", "--verbose"])
    assert result.exit_code == 0
    for text in ("--data cifar10:", "spherefed", "columns on cifar10: beta-0.5, beta-0.1"):
        assert text in result.stdout
    assert (
        "criterion: FedNCA-ML is ahead of the best other method by average macro" in result.stdout
    )


def test_runs_are_spread_over_the_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    given: list[tuple[str, ...]] = []
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr(
        "fedquilt.runs.reproduction.run_all", lambda runs, *, devices, **_: given.append(devices)
    )
    reproduce(*TINY[:-2], "--devices", "cuda:0,cuda:1", "--out", str(tmp_path / "out"))
    assert given == [("cuda:0", "cuda:1")]
