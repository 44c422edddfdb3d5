"""Result tables and their plain rows, compared with numbers computed by hand."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console
from rich.table import Table

from fedquilt.reports.style import deviation_or_none, mean_or_none, percent, title
from fedquilt.reports.tables import (
    average_rows,
    average_table,
    class_rows,
    class_table,
    decision_table,
    shown_intervals,
    status_rows,
    status_table,
)


def report(auc: list[float | None]) -> dict[str, Any]:
    return {
        "classes": ["mass", "[nodule]"],
        "per_class": {
            "auc": auc,
            "ap": [0.5, 0.25],
            "bacc": [0.5, None],
            "positives": [40.0, 3.0],
            "negatives": [60.0, 97.0],
        },
    }


def text_of(table: Table) -> str:
    written = io.StringIO()
    Console(file=written, width=120).print(table)
    return written.getvalue()


AVERAGES = {"macro_auc": 0.75, "map": 0.375, "bacc": 0.5}
ANNOTATORS = {"mass": ["a", "b"], "[nodule]": ["b"]}


def test_numbers():
    assert [percent(value) for value in (0.9876, 1.0, None)] == ["98.8", "100.0", "–"]
    assert mean_or_none([0.5, None, 1.0]) == 0.75
    assert mean_or_none([None]) is None
    assert deviation_or_none([1.0, 3.0, None]) == 2**0.5  # sqrt((1 + 1) / (2 - 1))
    assert deviation_or_none([1.0]) is None
    assert (title("macro_auc"), title("overall_recall")) == ("AUC", "overall recall")


def test_class_rows_of_one_model():
    rows = class_rows({"global": report([0.9, 0.6])}, ANNOTATORS)
    assert rows[1] == {
        "class": "[nodule]",
        "auc": 0.6,
        "ap": 0.25,
        "bacc": None,
        "positives": 3,
        "negatives": 97,
        "annotators": ["b"],
    }


def test_class_rows_of_several_models_are_means_of_defined_values():
    rows = class_rows({"a": report([0.5, None]), "b": report([1.0, 0.6])}, ANNOTATORS)
    assert [row["auc"] for row in rows] == [0.75, 0.6]


def test_class_table():
    rows = class_rows({"global": report([0.9, 0.6])}, ANNOTATORS)
    lines = text_of(class_table(rows, AVERAGES, client_count=4)).splitlines()
    found = [line.split() for line in lines if line.split()[:1] in (["mass"], ["[nodule]"])]
    assert found[0] == ["mass", "90.0", "50.0", "50.0", "40", "a,", "b"]
    assert found[1] == ["[nodule]", "60.0", "25.0", "–", "3", "!", "b"]
    assert any("fewer than 10 positives" in line for line in lines)
    assert ["mean", "75.0", "37.5", "50.0"] in [line.split() for line in lines]


def test_many_annotators_are_counted():
    many = {"mass": list("abcd"), "[nodule]": []}
    rows = class_rows({"global": report([0.9, 0.6])}, many)
    assert "all 4 clients" in text_of(class_table(rows, AVERAGES, client_count=4))
    text = text_of(class_table(rows, AVERAGES, client_count=9))
    assert "4 of 9 clients" in text
    assert "no client" in text


def test_averages_with_and_without_a_spread():
    assert "global model" in text_of(average_table(average_rows(AVERAGES)))
    rows = average_rows(AVERAGES, {"macro_auc": 0.012, "map": None, "bacc": None})
    assert rows[0] == {"average": "macro_auc", "value": 0.75, "deviation": 0.012}
    lines = [line.split() for line in text_of(average_table(rows)).splitlines()]
    assert ["deviation", "1.2", "–", "–"] in lines


def test_annotation_status():
    values = {"macro_auc": 0.9, "map": 0.8, "bacc": 0.7, "macro_f1": 0.6}
    nothing = dict.fromkeys(values)
    status = {
        "mean": {"annotated": values, "unannotated": nothing},
        "client_count": {
            "annotated": dict.fromkeys(values, 3),
            "unannotated": dict.fromkeys(values, 0),
        },
    }
    rows = status_rows(status)
    assert rows[0] == {"classes": "annotated", **values, "clients": 3}
    lines = [line.split() for line in text_of(status_table(rows)).splitlines()]
    assert ["annotates", "90.0", "80.0", "70.0", "60.0", "3"] in lines
    assert ["does", "not", "annotate", "–", "–", "–", "–", "–"] in lines


def intervals_of(auc: dict[str, list[float | None]]) -> dict[str, Any]:
    rate = {"value": [0.5, None], "low": [0.25, None], "high": [0.75, None]}
    rates = dict.fromkeys(("sensitivity", "specificity", "ppv", "npv"), rate)
    return {
        "positive_patients": [20, 3],
        "negative_patients": [50, 90],
        "per_class": {"auc": auc, **rates},
        "averages": {"macro_auc": {"value": 0.75, "low": 0.7, "high": 0.8}},
    }


INTERVALS = intervals_of({"value": [0.9, 0.6], "low": [0.8, None], "high": [0.96, None]})


def test_intervals_stand_beside_their_numbers():
    rows = class_rows({"global": report([0.9, 0.6])}, ANNOTATORS, INTERVALS)
    assert rows[0]["intervals"]["auc"] == {"value": 0.9, "low": 0.8, "high": 0.96}
    assert (rows[1]["positive_patients"], rows[1]["negative_patients"]) == (3, 90)
    shown = text_of(class_table(rows, AVERAGES, client_count=2, intervals=INTERVALS))
    assert "90.0 [80.0, 96.0]" in shown
    assert "75.0 [70.0, 80.0]" in shown
    assert "60.0 [" not in shown  # undefined ends are not shown
    shown = text_of(decision_table(rows))
    assert "50.0 [25.0, 75.0]" in shown
    assert "40.0" in shown  # the prevalence, 40 of 100
    assert "hold at the prevalence" in shown


def test_which_intervals_are_shown():
    assert shown_intervals({"reports": {}}) is None  # of an earlier version
    assert shown_intervals({"intervals": {"global": INTERVALS}}) is INTERVALS
    own = {"intervals": {"a": {}, "b": {}}, "mean_intervals": INTERVALS}
    assert shown_intervals(own) is INTERVALS
