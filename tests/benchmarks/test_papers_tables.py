"""The driver of the papers' ablation tables: its parts are planned, run and written."""

from __future__ import annotations

import csv
import json
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import pytest
from support.inline_pool import InlinePool

from benchmarks.studies import papers_tables
from benchmarks.studies.papers_tables import PARTS, SEEDS, planned, run
from fedquilt.recipes.papers import find_table
from fedquilt.recipes.recipe import Recipe


def options(tmp_path: Path, **changes: object) -> Namespace:
    given = {
        "photographs": tmp_path,
        "weights": None,
        "out": tmp_path / "out",
        "seconds": 600.0,
        "last": 40.0,
        "workers": 1,
        "device": "cpu",
        "tiny": False,
    }
    return Namespace(**(given | changes))


def test_each_part_plans_all_rows_of_its_table_with_three_seeds(tmp_path: Path) -> None:
    study = planned(options(tmp_path, weights=tmp_path / "w.safetensors"), tmp_path / "runs")
    for part in PARTS:
        table, runs, _ = study.tables[part.table]
        rows = {row.name for row in find_table(part.table, part.data).rows}
        assert {(each.cell.row.name, each.seed) for each in runs} == {
            (row, seed) for row in rows for seed in SEEDS
        }
        assert table.rounds == part.rounds
        weights = {each.recipe.model.weights for each in runs}
        assert weights == {str(tmp_path / "w.safetensors") if part.pretrained else "random"}
    first = [each.seed for each in study.waiting()]
    assert first == sorted(first)  # every table with a seed before the next one


def test_runs_are_written_as_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = ("data.train=200", "data.test=60", "method.training.steps=1")
    part = replace(PARTS[-1], data="digits", rounds=1, rows="fixed-etf,learnable-etf", settings=few)
    monkeypatch.setattr(papers_tables, "PARTS", (part,))
    monkeypatch.setattr(papers_tables, "SEEDS", (0, 1))
    monkeypatch.setattr(papers_tables, "RunPool", InlinePool)
    run(options(tmp_path))
    out = tmp_path / "out" / "fednca-ml-table8"
    with (out / "runs.csv").open(newline="") as file:
        runs = list(csv.DictReader(file))
    assert [row["cell"] for row in runs] == [
        f"{row}--beta-0.5--seed{seed}" for row in ("fixed-etf", "learnable-etf") for seed in (0, 1)
    ]
    made = json.loads((out / "table.json").read_text(encoding="utf-8"))
    assert "command" in (out / "table.csv").read_text(encoding="utf-8").splitlines()[0]
    assert made["table"] == "fednca-ml/table8"


def test_no_run_starts_when_the_time_is_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    part = replace(PARTS[-1], data="digits", rounds=1, settings=("data.train=200",))
    monkeypatch.setattr(papers_tables, "PARTS", (part,))
    monkeypatch.setattr(papers_tables, "RunPool", InlinePool)
    run(options(tmp_path, seconds=0.0))
    assert "9 runs were not started" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


def test_a_failed_run_is_tried_once_more_after_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tried: list[str] = []

    class Pool(InlinePool):
        def submit(self, recipe: Recipe, folder: Path) -> None:
            tried.append(folder.name)
            self._ended.append((folder, ValueError("out of memory")))

    part = replace(PARTS[-1], data="digits", rounds=1, settings=("data.train=200",))
    monkeypatch.setattr(papers_tables, "PARTS", (part,))
    monkeypatch.setattr(papers_tables, "SEEDS", (0,))
    monkeypatch.setattr(papers_tables, "RunPool", Pool)
    run(options(tmp_path))
    rows = ("fixed-etf", "learnable-etf", "learnable-random")
    once = [f"{row}--beta-0.5--seed0" for row in rows]
    assert tried == once + once
    assert capsys.readouterr().out.count("FAILED") == 6
