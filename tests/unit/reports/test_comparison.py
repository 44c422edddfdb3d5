"""Comparison of runs with made-up results."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from matplotlib.figure import Figure
from rich.console import Console

from fedquilt.core.errors import UserError
from fedquilt.reports import comparison_picture
from fedquilt.reports.comparison import (
    compare,
    comparison_table,
    difference_table,
    worst_class_table,
)
from fedquilt.reports.comparison_picture import save_comparison_picture


def made_up_run(
    method: str,
    auc: float,
    per_class: list[float | None],
    *,
    seed: int = 0,
    settings: dict[str, Any] | None = None,
    rounds: int = 2,
) -> Any:
    recipe = {
        "method": {"name": method, **(settings or {})},
        "rounds": rounds,
        "seed": seed,
        "allocation_seed": None,
    }
    return SimpleNamespace(
        path=Path(f"{method}-{seed}"),
        classes=("easy", "hard"),
        settings=recipe,
        is_bound=method == "full-labels",
        result={
            "metrics": {"macro_auc": auc, "hamming": 1 - auc},
            "reports": {"global": {"per_class": {"auc": per_class}}},
        },
        history=[
            {"round": 1, "metrics": {"macro_auc": auc - 0.1}},
            {"round": 2, "metrics": None},
            {"round": 3, "metrics": {"macro_auc": auc}},
        ],
    )


def two_methods() -> list[Any]:
    return [
        made_up_run("fedavg", 0.6, [0.7, 0.5]),
        made_up_run("fedmlp", 0.8, [0.9, 0.7], seed=0),
        made_up_run("fedmlp", 0.9, [0.9, 0.9], seed=1),
    ]


def text_of(table: Any) -> list[list[str]]:
    written = io.StringIO()
    Console(file=written, width=120).print(table)
    return [line.split() for line in written.getvalue().splitlines()]


def test_mean_and_deviation_over_seeds():
    compared = compare(two_methods(), ["macro_auc", "hamming"])
    group = compared["groups"][1]
    assert group["seeds"] == [0, 1]
    assert group["metrics"]["macro_auc"]["mean"] == pytest.approx(0.85)
    # sqrt((0.05^2 + 0.05^2) / (2 - 1))
    assert group["metrics"]["macro_auc"]["deviation"] == pytest.approx(0.0707106781)
    assert compared["groups"][0]["metrics"]["macro_auc"]["deviation"] is None


def test_best_is_the_largest_or_for_hamming_the_smallest():
    runs = [made_up_run("a", 0.6, [0.7, 0.5]), made_up_run("b", 0.8, [0.6, 0.7])]
    assert compare(runs, ["macro_auc", "hamming"])["best"] == {"macro_auc": "b", "hamming": "b"}
    assert compare(runs[:1], ["macro_auc"])["best"] == {"macro_auc": None}


def test_worst_classes_come_first():
    assert compare(two_methods(), ["auc"])["worst_classes"] == ["hard", "easy"]
    undefined = [made_up_run("a", 0.6, [0.7, None])]
    assert compare(undefined, ["auc"])["worst_classes"] == ["easy"]


def test_groups_of_one_method_are_labelled_by_their_settings():
    runs = [
        made_up_run("fedprox", 0.6, [0.7, 0.5], settings={"mu": 0.1}),
        made_up_run("fedprox", 0.7, [0.7, 0.5], settings={"mu": 0.2}),
        made_up_run("fedavg", 0.5, [0.7, 0.5]),
    ]
    labels = [group["label"] for group in compare(runs, ["auc"])["groups"]]
    assert labels == ["fedprox mu=0.1", "fedprox mu=0.2", "fedavg"]


def test_differences_outside_the_method_are_listed():
    runs = [made_up_run("a", 0.6, [0.7, 0.5]), made_up_run("b", 0.6, [0.7, 0.5], rounds=9)]
    assert compare(runs, ["auc"])["also_differ_in"] == ["rounds"]
    assert compare(two_methods(), ["auc"])["also_differ_in"] == []


def test_unknown_metric():
    with pytest.raises(UserError, match="did you mean 'hamming'"):
        compare(two_methods(), ["haming"])


def test_the_largest_number_gets_no_star():
    compared = compare(two_methods(), ["macro_auc"])
    rows = text_of(comparison_table(compared))
    assert ["fedavg", "1", "60.0"] in rows
    assert ["fedmlp", "2", "85.0", "±", "7.1"] in rows
    hardest = text_of(worst_class_table(compared))
    assert ["fedmlp", "80.0", "±", "14.1", "90.0", "±", "0.0"] in hardest
    assert ["fedavg", "50.0", "70.0"] in hardest
    assert difference_table(compared) is None
    assert compared["tests"][0]["words"] == (
        "fedavg and fedmlp are not tested: fedavg has no scores per image "
        "(fedquilt evaluate RUN --keep-scores)"
    )


def test_who_is_significantly_ahead_gets_the_star():
    compared = compare(two_methods(), ["macro_auc"])
    compared |= {"ahead": {"macro_auc": "fedmlp"}, "class_ahead": {"easy": None, "hard": "fedmlp"}}
    table = comparison_table(compared)
    assert ["fedmlp", "2", "*", "85.0", "±", "7.1"] in text_of(table)
    assert table.caption == "* significantly ahead of every other row (5 %, Holm)"
    hardest = text_of(worst_class_table(compared))
    assert ["fedmlp", "*", "80.0", "±", "14.1", "90.0", "±", "0.0"] in hardest


def test_runs_of_an_earlier_version_on_other_labels_are_refused():
    runs = [made_up_run(name, 0.6, [0.7, 0.5]) for name in ("a", "b")]
    for run, positives in zip(runs, ([10, 4], [10, 5])):
        run.result["reports"]["global"]["per_class"] |= {
            "positives": positives,
            "negatives": [90, 96],
        }
    with pytest.raises(UserError, match="a and b were tested on different data"):
        compare(runs, ["auc"])


def test_a_bound_with_all_labels_is_not_ranked():
    compared = compare([*two_methods(), made_up_run("full-labels", 0.99, [0.99, 0.99])], ["auc"])
    assert compared["best"]["macro_auc"] == "fedmlp"
    assert len(compared["tests"]) == 1  # of the other two
    assert not any("*" in cell for row in text_of(worst_class_table(compared))[-2:] for cell in row)


def test_seeds_of_the_data_count_as_seeds():
    runs = two_methods()
    for run in runs:
        run.settings["data"] = {"name": "digits-mosaic", "seed": run.settings["seed"]}
    assert [len(group["seeds"]) for group in compare(runs, ["auc"])["groups"]] == [1, 2]


def test_one_run_has_no_best():
    compared = compare(two_methods()[:1], ["macro_auc"])
    assert ["fedavg", "1", "60.0"] in text_of(comparison_table(compared))
    assert ["fedavg", "50.0", "70.0"] in text_of(worst_class_table(compared))


def test_picture_shows_evaluated_rounds_and_every_class(monkeypatch: pytest.MonkeyPatch):
    drawn: list[Figure] = []
    monkeypatch.setattr(comparison_picture, "save", lambda figure, path: drawn.append(figure))
    runs = two_methods()
    save_comparison_picture(runs, compare(runs, ["macro_auc"]), Path("unused.png"))
    over_rounds, by_class = drawn[0].axes
    lines = {line.get_label(): line for line in over_rounds.lines}
    assert list(lines["fedmlp"].get_xdata()) == [1, 3]
    assert list(lines["fedmlp"].get_ydata()) == pytest.approx([75, 85])
    assert [tick.get_text() for tick in by_class.get_yticklabels()] == ["easy", "hard"]
    assert list(by_class.lines[0].get_xdata()) == pytest.approx([70, 50])
