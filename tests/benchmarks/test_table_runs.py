"""The runs of a reproduced table in one CSV file: what is packed is unpacked again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.result_csv import RESULTS
from benchmarks.harness.table_runs import pack, unpack
from fedquilt.recipes.papers import find_table
from fedquilt.reports.reproduced import reproduced
from fedquilt.runs.reproduction import plan_runs


def _result(seed: int) -> dict[str, Any]:
    return {
        "method": "fedavg",
        "seed": seed,
        "recipe_hash": "12e4",  # text, though it could be read as a number
        "metrics": {"macro_auc": 0.1 + 0.2, "map": None},
        "reports": {"global": {"classes": ["a, b", "c"], "per_class": {"auc": [0.5, None]}}},
        "environment": {"torch": "2.11", "cores": 16},
    }


def test_every_value_is_unpacked_as_it_was(tmp_path: Path) -> None:
    for seed in (0, 1):
        folder = tmp_path / "before" / "cells" / f"fedavg--seed{seed}"
        folder.mkdir(parents=True)
        left_out = {"annotation_status": {"mean": 1}, "spread_over_clients": {"map": 0.1}}
        (folder / "result.json").write_text(json.dumps(_result(seed) | left_out))
    pack(tmp_path / "before", tmp_path / "runs.csv")
    unpack(tmp_path / "runs.csv", tmp_path / "after")
    for seed in (0, 1):
        text = (tmp_path / "after" / "cells" / f"fedavg--seed{seed}" / "result.json").read_text()
        assert json.loads(text) == _result(seed)


def test_runs_of_methods_that_tell_different_things_are_unpacked(tmp_path: Path) -> None:
    """One has a table of numbers where the other has none, as of pseudo-labels."""
    told = {"fedavg": {"pseudo_labels": None}, "fedmlp": {"pseudo_labels": {"share": 0.5}}}
    for method, more in told.items():
        folder = tmp_path / "before" / "cells" / method
        folder.mkdir(parents=True)
        (folder / "result.json").write_text(json.dumps(_result(0) | more))
    pack(tmp_path / "before", tmp_path / "runs.csv")
    unpack(tmp_path / "runs.csv", tmp_path / "after")
    for method, more in told.items():
        text = (tmp_path / "after" / "cells" / method / "result.json").read_text()
        assert json.loads(text) == _result(0) | more


@pytest.mark.parametrize(
    ("data", "cells", "auc_of_fedavg", "finished"),
    # The two cells of the bound are of the time when it did not keep its optimizer.
    [("cifar10", [], 87.55, 18), ("cifar10-128", ["fedavg", "fednca-ml"], 89.74, 6)],
)
def test_the_table_of_fednca_ml_is_rebuilt_without_training(
    data: str, cells: list[str], auc_of_fedavg: float, finished: int, tmp_path: Path
) -> None:
    name = f"fednca_ml_table1_{data.replace('-', '_')}_runs.csv"
    unpack(RESULTS / "tables" / name, tmp_path)
    table = find_table("fednca-ml/table1", data, None)
    runs = plan_runs(
        table,
        table.cells(cells),
        range(2),
        tmp_path,
        folder=Path("carry/a"),  # the data's folder is part of a recipe, and so of its hash
        changes=["method.training.precision=bfloat16"],
    )
    assert sum(run.is_finished for run in runs) == finished
    rows = {row["row"]: row["columns"] for row in reproduced(table, runs)["rows"]}
    found = rows["fedavg"]["beta-0.5"]["macro_auc"]["mean"]
    assert found == pytest.approx(auc_of_fedavg, abs=0.005)  # as in the table's own CSV file
