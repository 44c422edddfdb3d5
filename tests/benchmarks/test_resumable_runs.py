"""Benchmarks of many runs: a finished run is saved at once and not repeated."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from support.tiny_runs import tiny_settings

from benchmarks.harness import result_csv
from benchmarks.harness.result_csv import Row, read_results, write_results
from benchmarks.harness.resumable_runs import make_runs, summaries, summary
from fedquilt.recipes.recipe import recipe_from


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(result_csv, "RESULTS", tmp_path)
    return tmp_path


def made(folder: Path, *seeds: int) -> list[Row]:
    recipes = {
        (("method", "fedavg"), ("seed", str(seed))): recipe_from(tiny_settings("fedavg", seed=seed))
        for seed in seeds
    }
    return make_runs("studies/tried", recipes, cache=folder, device="cpu", workers=1)


def test_a_run_in_the_csv_is_not_repeated(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (first,) = made(results, 0)
    assert "0 of 1 runs are finished already" in capsys.readouterr().out
    path = results / "studies" / "tried_runs.csv"
    path.write_text(path.read_text().replace(str(first["seconds"]), "12345.6"))
    rows = made(results, 0, 1)
    assert "1 of 2 runs are finished already" in capsys.readouterr().out
    assert [row["seed"] for row in rows] == ["0", "1"]
    assert rows[0]["seconds"] == "12345.6"  # as it was read
    with path.open(newline="") as file:
        assert [row["seed"] for row in csv.DictReader(file)] == ["0", "1"]


def test_a_summary_has_mean_and_deviation_by_seed() -> None:
    numbers = {"bacc": 50, "map": 10, "seconds": 3}
    rows = [{"seed": seed, "macro_auc": auc, **numbers} for seed, auc in ((1, 84), (0, 80))]
    found = summary(rows)
    assert (found["seeds"], found["macro_auc"], found["macro_auc_per_seed"]) == (
        "0 1",
        82,
        "80.00 84.00",
    )
    assert found["macro_auc_deviation"] == 2.83  # sqrt(((-2) ** 2 + 2 ** 2) / 1)


def test_cells_are_summarised_in_order_and_those_without_runs_are_left_out() -> None:
    numbers = {"macro_auc": "80", "bacc": "70", "map": "60", "seconds": "1"}
    rows: list[Row] = [
        {"data": "scenes", "method": method, "seed": seed, **numbers}
        for method, seed in (("fedavg", "1"), ("fedmlp", "0"), ("fedavg", "0"))
    ]
    cells = [("scenes", "fedmlp"), ("scenes", "fedlsm"), ("scenes", "fedavg")]
    found = summaries(rows, ("data", "method"), cells)
    assert [(row["method"], row["seeds"]) for row in found] == [("fedmlp", "0"), ("fedavg", "0 1")]


def test_rows_of_earlier_runs_are_kept_with_their_columns(results: Path) -> None:
    write_results("speed/tried", [{"run": 1, "commit": "abc", "ratio": 0.5}])
    earlier = read_results("speed/tried")
    write_results("speed/tried", [{"run": 2, "ratio": 0.7}], earlier=earlier)
    rows = read_results("speed/tried")
    assert [(row["run"], row["commit"], row["ratio"]) for row in rows] == [
        ("1", "abc", "0.5"),
        ("2", "", "0.7"),
    ]
    assert all(row["date"] and row["hardware"] and row["versions"] for row in rows)
