"""The table of sites and its plain rows."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from fedquilt.reports.site_table import site_rows, site_table

NOTHING = {"macro_auc": None, "map": None, "bacc": None, "macro_f1": None}


def averages(auc: float) -> dict[str, Any]:
    return NOTHING | {"macro_auc": auc, "map": 0.25}


def report(means: dict[str, Any], positives: list[float], negatives: list[float]) -> dict[str, Any]:
    return {
        "averages": means,
        "defined": {"macro_auc": sum(found > 0 for found in positives)},
        "per_class": {"positives": positives, "negatives": negatives},
    }


def block(**reports: dict[str, Any]) -> dict[str, Any]:
    return {
        "images": dict.fromkeys(reports, 1_200),
        "mean": averages(0.8),
        "deviation": averages(0.1),
        "reports": reports,
    }


MANY = report(averages(0.9), [40.0, 0.0], [60.0, 0.0])  # the second class: not annotated
FEW = report(averages(0.7), [0.0, 30.0], [60.0, 70.0])
NONE = report(NOTHING, [0.0, 0.0], [0.0, 0.0])


def lines_of(by_site: dict[str, Any], model: str = "own", width: int = 80) -> list[str]:
    written = io.StringIO()
    Console(file=written, width=width).print(site_table(site_rows(by_site), model))
    return [" ".join(line.split()) for line in written.getvalue().splitlines()]


def test_rows_are_sites_then_mean_and_deviation():
    rows = site_rows(block(East=MANY, West=FEW))
    assert [row["site"] for row in rows] == ["East", "West", "mean", "deviation"]
    counts = {"interval": None, "classes": 1, "images": 1_200, "fewest_positives": 40}
    assert rows[0] == {"site": "East", **averages(0.9), **counts}
    assert rows[1]["fewest_positives"] == 0  # annotated, and never present
    assert rows[2]["macro_auc"] == 0.8


def test_table_flags_few_positives_and_shows_dashes_for_undefined_values():
    lines = lines_of(block(East=MANY, West=FEW, North=NONE))
    assert "Own model on its own site's test images (%)" in lines
    assert "East 90.0 25.0 – – 1 1,200 40" in lines
    assert "West 70.0 25.0 – – 1 1,200 0 !" in lines
    assert "North – – – – 0 1,200 –" in lines
    assert "mean 80.0 25.0 – –" in lines
    assert "deviation 10.0 25.0 – –" in lines
    assert any("fewer than 10 positives" in line for line in lines)


def test_enough_positives_are_not_flagged():
    lines = lines_of(block(East=MANY, North=NONE), "global")
    assert "Global model on each site's test images (%)" in lines
    assert not any("!" in line for line in lines)


def test_many_sites_are_left_to_the_result_file():
    lines = lines_of(block(**{f"site {number}": MANY for number in range(21)}))
    assert not any(line.startswith("site 1 ") for line in lines)
    assert "mean 80.0 25.0 – –" in lines
    assert "over 21 sites; result.json lists each of them" in lines


def test_a_site_that_can_test_no_class_has_no_averages():
    """Results of earlier versions give 100 % over 0 classes, of positives alone."""
    perfect = NOTHING | {"map": 1.0, "macro_f1": 1.0}
    old = report(perfect, [30.0, 0.0], [0.0, 0.0]) | {"defined": {"macro_auc": 0}}
    assert "South – – – – 0 1,200 30" in lines_of(block(East=MANY, South=old))


def test_the_interval_of_a_sites_macro_auc():
    by_site = block(East=MANY, West=FEW)
    interval = {"low": 0.8125, "high": 0.9575}
    by_site["intervals"] = {"East": {"averages": {"macro_auc": interval}}}
    assert "East 90.0 [81.2, 95.8] 25.0 – – 1 1,200 40" in lines_of(by_site, width=120)
