"""Differences between rows of an ablation table: paired by seed, with Student's interval."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.harness.table_runs import pack
from benchmarks.studies.papers_differences import of_part
from benchmarks.studies.papers_tables import PARTS

PART = next(part for part in PARTS if part.table == "fedlsm/table3")
AUC = {"fedlsm": (0.80, 0.83, 0.86), "without-ue": (0.79, 0.80, 0.84), "without-ude": (0.9,)}


def test_rows_are_compared_by_the_seeds_that_both_have(tmp_path: Path) -> None:
    for row, values in AUC.items():
        for seed, value in enumerate(values):
            folder = tmp_path / "runs" / "cells" / f"{row}--identified-3--seed{seed}"
            folder.mkdir(parents=True)
            (folder / "result.json").write_text(
                json.dumps({"seed": seed, "metrics": {"macro_auc": value}})
            )
    pack(tmp_path / "runs", tmp_path / f"{PART.file}_runs.csv")
    found = {(each["row"], each["minus"]): each for each in of_part(PART, tmp_path)}
    whole = found["FedLSM without UE", "FedLSM"]
    assert whole["per_seed"] == "-1.00 -3.00 -2.00"
    assert whole["difference"] == "-2.00"
    half = 4.302653 / 3**0.5  # Student's t with two degrees of freedom; the deviation is 1
    assert float(whole["low"]) == pytest.approx(-2 - half, abs=0.005)
    assert float(whole["high"]) == pytest.approx(-2 + half, abs=0.005)
    assert found["FedLSM without UDE", "FedLSM"]["seeds"] == "0"  # the only one that both have
    assert len(found) == 3


def test_a_table_that_was_not_run_has_no_differences(tmp_path: Path) -> None:
    assert of_part(PART, tmp_path) == []
