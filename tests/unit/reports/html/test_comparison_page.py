"""The report of a comparison: made of numbers by hand, with names that try to be markup."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.comparisons import made_comparison, made_group
from support.html_pages import Page
from support.report_folders import HOSTILE

from fedquilt.reports.html.comparison_report import (
    MAX_ROWS,
    comparison_content,
    write_comparison_report,
)


def test_numbers_of_the_page():
    content = comparison_content(made_comparison())
    (row,) = content["differences"]["rows"]
    assert (row["value"], row["interval"], row["ahead"]) == ("+6.0", "+3.7 to +8.4", "a")
    # The scale goes from -8.4 to 8.4 points.
    assert (row["at"], row["bar"]) == (85.7, (72.0, 28.0))
    strips = content["metrics"][0]
    assert strips["ends"] == ["69.0", "91.0"]
    assert strips["rows"][0]["places"] == [50.0, 95.5]
    assert [each["cells"] for each in content["classes"]] == [
        ["85.0 ± 1.0*", "70.0 ± 1.0"],
        ["85.0 ± 1.0", "70.0 ± 1.0"],
    ]
    (pair,) = content["pairs"]
    assert (pair["ahead"], [each["name"] for each in pair["rows"]]) == (1, ["x", "y"])


def test_what_was_not_tested_has_its_reason():
    nothing = dict.fromkeys(("value", "low", "high", "p", "p_holm", "ahead"))
    test = made_comparison()["tests"][0] | {
        "words": "a and b are not tested: they have no seed in common",
        "macro_auc": nothing | {"classes": 0},
        "classes": {},
        "patients": 0,
    }
    content = comparison_content(made_comparison(tests=[test], also_differ_in=["rounds"]))
    assert content["differences"]["rows"] == []
    assert "no seed in common" in content["sentences"][0]
    assert any("rounds" in limit for limit in content["limits"])
    alone = comparison_content(made_comparison(tests=[], groups=[made_group("a", 0.8)]))
    assert alone["sentences"] == [
        "No two rows can be tested against each other: there is only one."
    ]


def test_a_bound_is_named_as_such():
    groups = [made_group("a", 0.8), made_group("b", 0.7), made_group("pooled", 0.9, is_bound=True)]
    limits = comparison_content(made_comparison(groups=groups))["limits"]
    assert any("not ranked: pooled" in limit for limit in limits)


def test_hostile_names_are_text(tmp_path: Path):
    path = write_comparison_report(made_comparison(HOSTILE, HOSTILE[0]), tmp_path / "c.html")
    page = Page(path.read_text(encoding="utf-8"))
    assert len(page.scripts) == 1
    assert not {tag for tag, _ in page.tags} & {"img", "link", "iframe", "form"}
    cells = {cell.strip() for cell in page.cells}
    assert {HOSTILE[0], HOSTILE[1], "{{7*7}}", "\ufffd[31mred", "(no name)"} <= cells
    assert len(page.ids) == len(set(page.ids))
    assert "home/somebody" not in page.text  # a report is sent to others


def test_many_classes_are_shortened(tmp_path: Path):
    names = tuple(f"class {number}" for number in range(1628))
    content = comparison_content(made_comparison(names))
    assert len(content["classes"]) == 1628
    assert len(content["pairs"][0]["rows"]) == MAX_ROWS
    assert content["pairs"][0]["rows"][0]["name"] == "class 0"  # the smallest p
    assert content["many"].startswith("1,628 differences are tested")
    assert "below 3.1e-05" in content["many"]
    path = write_comparison_report(made_comparison(names), tmp_path / "c.html")
    assert path.stat().st_size < 1_000_000


@pytest.mark.parametrize("classes", [("x", "y"), HOSTILE])
def test_the_same_comparison_gives_the_same_bytes(classes: Any, tmp_path: Path):
    pages = [
        write_comparison_report(made_comparison(classes), tmp_path / name).read_bytes()
        for name in "ab"
    ]
    assert pages[0] == pages[1]
