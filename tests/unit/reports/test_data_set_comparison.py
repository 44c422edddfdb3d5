"""Methods ranked over data sets."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedquilt.core.errors import UserError
from fedquilt.reports.data_set_comparison import (
    compare_over_data_sets,
    data_set_table,
    save_rank_picture,
)

TABLE = [
    [0.91, 0.89, 0.93, 0.95],
    [0.85, 0.86, 0.88, 0.90],
    [0.78, 0.74, 0.79, 0.80],
    [0.93, 0.92, 0.94, 0.96],
    [0.70, 0.69, 0.75, 0.72],
]


def made_up_run(data: str, method: str, auc: float, seed: int = 0, **settings: Any) -> Any:
    recipe = {"method": {"name": method, **settings}, "data": {"name": data}, "seed": seed}
    return SimpleNamespace(
        path=Path(f"{data}-{method}"),
        settings=recipe,
        result={"metrics": {"macro_auc": auc, "hamming": 1 - auc}},
    )


def runs(table: list[list[float]] = TABLE) -> list[Any]:
    return [
        made_up_run(f"data{place}", f"m{column}", value, warmup_rounds=place)
        for place, row in enumerate(table)
        for column, value in enumerate(row)
    ]


def test_ranks_and_critical_difference():
    found = compare_over_data_sets(runs())
    assert found["mean_ranks"] == {"m0": 3.2, "m1": 3.8, "m2": 1.8, "m3": 1.2}
    assert found["iman_davenport"]["f"] == pytest.approx(27.25)
    assert found["critical_difference"] == pytest.approx(2.09760566)
    assert found["nemenyi"]["m1"]["m3"] == pytest.approx(0.007913, abs=5e-7)
    assert found["words"].startswith("the methods differ over 5 data sets")


def test_a_smaller_hamming_loss_is_better():
    assert compare_over_data_sets(runs(), "hamming")["mean_ranks"]["m3"] == 1.2


def test_four_data_sets_are_too_few(tmp_path: Path):
    found = compare_over_data_sets(runs(TABLE[:4]))
    assert found["words"].startswith("too few to tell: 4 data sets, at least 5")
    with pytest.raises(UserError, match="too few to tell"):
        save_rank_picture(found, tmp_path / "ranks.png")


def test_seeds_are_averaged_first():
    doubled = [*runs(), made_up_run("data0", "m1", 0.99, seed=1, warmup_rounds=0)]
    found = compare_over_data_sets(doubled)  # 0.94 on average: second on the first data set
    assert found["data_sets"]["data0"]["m1"] == pytest.approx(0.94)


def test_a_method_must_have_run_everywhere():
    with pytest.raises(UserError, match="no macro_auc of m3 on data4"):
        compare_over_data_sets(runs()[:-1])
    with pytest.raises(UserError, match=r"found 1 data set\(s\) and 4 method\(s\)"):
        compare_over_data_sets(runs(TABLE[:1]))


def test_the_table_and_the_picture(tmp_path: Path):
    found = compare_over_data_sets(runs())
    table = data_set_table(found)
    assert table.row_count == 6
    assert "critical difference 2.10 ranks" in str(table.caption)
    save_rank_picture(found, tmp_path / "ranks.png")
    assert (tmp_path / "ranks.png").read_bytes().startswith(b"\x89PNG")
