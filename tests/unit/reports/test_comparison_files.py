"""A comparison as CSV, Markdown and LaTeX."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from fedquilt.core.errors import UserError
from fedquilt.reports.comparison_files import written

FOUND = {"value": 0.05, "low": 0.01, "high": 0.09, "p": 0.0123, "p_holm": 0.0123, "ahead": "a_b"}


def comparison() -> dict[str, Any]:
    return {
        "metrics": ["macro_auc"],
        "ahead": {"macro_auc": "a_b"},
        "class_metric": "auc",
        "class_ahead": {"=mass|1": None},
        "groups": [
            group("a_b", [0.8, 0.9], 0.0707),
            group("c & d", [0.75], None),
        ],
        "tests": [
            {
                "one": "a_b",
                "other": "c & d",
                "seeds": 1,
                "words": "a_b is significantly ahead",
                "macro_auc": FOUND,
                "classes": {"=mass|1": FOUND | {"value": None}},
            }
        ],
    }


def group(label: str, values: list[float], deviation: float | None) -> dict[str, Any]:
    summary = {"mean": sum(values) / len(values), "deviation": deviation, "values": values}
    return {
        "label": label,
        "seeds": list(range(len(values))),
        "metrics": {"macro_auc": summary},
        "classes": {"=mass|1": summary},
    }


def test_markdown():
    assert written(comparison(), "markdown").splitlines() == [
        "| method | seeds | AUC (%) |",
        "| --- | ---: | ---: |",
        "| a_b | 2 | 85.0 ± 7.1* |",
        "| c & d | 1 | 75.0 |",
        "",
        "| first minus second | AUC difference [95 % interval] (points) | p | p (Holm) |",
        "| --- | ---: | ---: | ---: |",
        "| a_b - c & d | 5.0 [1.0, 9.0] | 0.012 | 0.012 |",
        "",
        "a_b is significantly ahead",
    ]


def test_latex():
    text = written(comparison(), "latex")
    assert r"a\_b & 2 & 85.0 $\pm$ 7.1$^{*}$ \\" in text
    assert r"c \& d & 1 & 75.0 \\" in text
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 2
    assert "% a_b is significantly ahead" in text


def test_csv_holds_every_number():
    rows = list(csv.DictReader(io.StringIO(written(comparison(), "csv"))))
    assert [row["kind"] for row in rows] == ["method"] * 4 + ["difference"]
    assert rows[0]["value"] == "0.8500000000000001"
    assert rows[0]["significantly_ahead"] == "yes"
    assert rows[1]["class"] == "'=mass|1"  # no formula for a spreadsheet
    difference = rows[4]
    assert (difference["name"], difference["minus"]) == ("a_b", "c & d")
    assert (difference["low"], difference["p"]) == ("0.01", "0.0123")
    assert difference["significantly_ahead"] == "a_b"


def test_unknown_format():
    with pytest.raises(UserError, match="expected csv, markdown, latex"):
        written(comparison(), "word")
