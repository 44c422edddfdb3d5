"""The driver of the papers' ablation tables: its parts are planned, run and written."""

from __future__ import annotations

import csv
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
    given: dict[str, object] = {
        "photographs": tmp_path,
        "weights": None,
        "out": tmp_path / "out",
        "seconds": 600.0,
        "workers": 1,
        "slots": 16,
        "tables": [],
        "cache": tmp_path / "cache",
        "device": "cpu",
        "tiny": False,
    }
    return Namespace(**(given | changes))


def test_each_part_plans_all_rows_of_its_table_with_three_seeds(tmp_path: Path) -> None:
    study = planned(options(tmp_path, weights=tmp_path / "w.safetensors"), tmp_path / "runs")
    for part in PARTS:
        table, runs, _ = study.tables[part]
        rows = {row.name for row in find_table(part.table, part.data).rows}
        assert {(each.cell.row.name, each.seed) for each in runs} == {
            (row, seed) for row in rows for seed in SEEDS
        }
        assert table.rounds == part.rounds
        weights = {each.recipe.model.weights for each in runs}
        assert weights == {str(tmp_path / "w.safetensors") if part.pretrained else "random"}
    first = [each.seed for each in study.waiting()]
    assert first == sorted(first)  # every table with a seed before the next one


def test_runs_are_kept_and_only_the_missing_ones_are_run_by_the_next_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    submitted: list[str] = []

    class Pool(InlinePool):
        def submit(self, recipe: Recipe, folder: Path) -> None:
            submitted.append(folder.name)
            super().submit(recipe, folder)

    few = ("data.train=200", "data.test=60", "method.training.steps=1")
    part = replace(PARTS[-1], data="digits", rounds=1, rows="fixed-etf,learnable-etf", settings=few)
    monkeypatch.setattr(papers_tables, "PARTS", (part,))
    monkeypatch.setattr(papers_tables, "RunPool", Pool)
    out = tmp_path / "out"
    for seeds in ((0,), (0, 1)):
        monkeypatch.setattr(papers_tables, "SEEDS", seeds)
        run(options(tmp_path))
    rows = ("fixed-etf", "learnable-etf")
    assert submitted == [f"{row}--beta-0.5--seed{seed}" for seed in (0, 1) for row in rows]
    with (out / "fednca_ml_table8_digits_runs.csv").open(newline="") as file:
        runs = list(csv.DictReader(file))
    assert [each["cell"] for each in runs] == sorted(submitted)
    with (out / "fednca_ml_table8_digits.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert {line["seeds"] for line in table} == {"0 1"}
    assert {line["method"] for line in table} == {"fixed, ETF", "learnable, ETF"}
    assert all("benchmarks.studies.papers_tables" in line["command"] for line in table)
    assert capsys.readouterr().out.count("0 runs are missing") == 2


def test_a_recipe_of_two_tables_is_run_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LADM alone of Table 7 has the queries that Table 8 calls fixed."""
    few = ("data.train=200", "data.test=60", "method.training.steps=1")
    parts = [
        replace(each, data="digits", rounds=1, rows=row, settings=few)
        for each, row in zip(PARTS[-2:], ("ladm", "fixed-etf"))
    ]
    monkeypatch.setattr(papers_tables, "PARTS", parts)
    monkeypatch.setattr(papers_tables, "SEEDS", (0,))
    submitted: list[str] = []

    class Pool(InlinePool):
        def submit(self, recipe: Recipe, folder: Path) -> None:
            submitted.append(folder.name)
            super().submit(recipe, folder)

    monkeypatch.setattr(papers_tables, "RunPool", Pool)
    run(options(tmp_path))
    assert submitted == ["ladm--beta-0.5--seed0"]
    kept = []
    for part in parts:
        with (tmp_path / "out" / f"{part.file}_runs.csv").open(newline="") as file:
            kept.append([row["recipe_hash"] for row in csv.DictReader(file)])
    assert kept[0] == kept[1]
    assert len(kept[0]) == 1


def test_a_result_of_other_settings_is_not_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = ("data.train=200", "data.test=60", "method.training.steps=1")
    part = replace(PARTS[-1], data="digits", rounds=1, rows="fixed-etf", settings=few)
    monkeypatch.setattr(papers_tables, "SEEDS", (0,))
    monkeypatch.setattr(papers_tables, "RunPool", InlinePool)
    found = []
    for steps in (1, 2):
        changed = (*few, f"method.training.steps={steps}")
        monkeypatch.setattr(papers_tables, "PARTS", (replace(part, settings=changed),))
        run(options(tmp_path))
        with (tmp_path / "out" / "fednca_ml_table8_digits_runs.csv").open(newline="") as file:
            found.append([each["recipe_hash"] for each in csv.DictReader(file)])
    assert [len(each) for each in found] == [1, 1]
    assert found[0] != found[1]


def test_a_run_that_would_not_end_in_time_is_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = replace(PARTS[-1], data="digits", rounds=1, settings=("data.train=200",))
    monkeypatch.setattr(papers_tables, "PARTS", (part,))
    study = planned(options(tmp_path), tmp_path / "runs")
    first, second, *_ = study.waiting()
    assert study.likely_seconds(first) == 0.0  # nothing is known yet
    study.keep(first, 50.0)
    assert study.likely_seconds(second) == 50.0


def test_tables_are_planned_in_the_order_in_which_they_are_named(tmp_path: Path) -> None:
    named = ["fedlsm/table3", "fedmlp/table3"]
    study = planned(options(tmp_path, tables=named), tmp_path / "runs")
    assert [part.table for part in study.tables] == named


def test_no_run_starts_when_the_time_is_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    part = replace(PARTS[-1], data="digits", rounds=1, settings=("data.train=200",))
    monkeypatch.setattr(papers_tables, "PARTS", (part,))
    monkeypatch.setattr(papers_tables, "RunPool", InlinePool)
    run(options(tmp_path, seconds=0.0))
    assert "9 runs are missing" in capsys.readouterr().out
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
