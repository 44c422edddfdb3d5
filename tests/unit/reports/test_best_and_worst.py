"""Tables and pictures of thousands of classes or sites show some, and say how many they omit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from fedquilt.cli.drawn_maps import most_likely
from fedquilt.core.shown_text import named_few
from fedquilt.data.checks.annotation_map import annotation_warnings, build_annotation_map
from fedquilt.reports import run_pictures
from fedquilt.reports.annotation_picture import annotation_table, draw_annotation_map
from fedquilt.reports.best_and_worst import best_and_worst
from fedquilt.reports.run_pictures import save_class_curves, save_pseudo_label_picture
from fedquilt.reports.tables import class_table

MANY = 1628
CLASSES = [f"class {number:04d}" for number in range(MANY)]


def lines_of(table: Table) -> list[str]:
    console = Console(width=120, no_color=True)
    with console.capture() as captured:
        console.print(table)
    return captured.get().splitlines()


def test_few_items_keep_their_order():
    ends = best_and_worst(["b", "a"], {"a": 2.0, "b": 1.0}.get, most=2)
    assert (ends.best, ends.omitted, ends.worst) == (["b", "a"], 0, [])


def test_of_many_the_largest_and_the_smallest_are_kept():
    values = {"a": 1.0, "b": None, "c": 5.0, "d": 3.0, "e": 0.0, "f": 2.0}
    ends = best_and_worst(list(values), values.get, most=4)
    assert (ends.best, ends.omitted, ends.worst) == (["c", "d"], 2, ["a", "e"])
    ends = best_and_worst(list(values), values.get, most=3)
    assert (ends.best, ends.omitted, ends.worst) == (["c", "d"], 3, ["e"])


def test_items_without_a_value_fill_up_what_is_left():
    values = {"a": None, "b": None, "c": 0.5, "d": None}
    ends = best_and_worst(list(values), values.get, most=3)
    assert (ends.best, ends.omitted, ends.worst) == (["c", "a", "b"], 1, [])


def test_names_in_a_sentence():
    assert named_few(["a", "b"], 2) == "a, b"
    assert named_few([*"abcd"], 2) == "a, b and 2 more"


def test_class_table_shows_the_classes_that_can_be_judged():
    rows = [
        {"class": name, "auc": place / MANY, "ap": 0.1, "bacc": 0.5, "negatives": 100}
        | {"positives": 1 if place >= MANY - 5 else 50, "annotators": ["a"]}
        for place, name in enumerate(CLASSES)
    ]
    table = class_table(rows, {"macro_auc": 0.5, "map": 0.1, "bacc": 0.5}, client_count=1)
    lines = lines_of(table)
    assert len(lines) < 60
    assert any("... 1,588 more: in result.json" in line for line in lines)
    shown = [line.split()[1] for line in lines if line.startswith("  class ") and "AUC" not in line]
    assert shown[0] == "1622"  # those above have a single positive
    assert shown[-1] == "0000"


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    figures: list[Figure] = []
    monkeypatch.setattr(run_pictures, "save", lambda figure, path: figures.append(figure))
    return figures


def test_curves_of_many_classes(drawn: list[Figure]):
    auc = {name: place / MANY for place, name in enumerate(CLASSES)}
    save_class_curves([{"round": 1, "per_class_auc": auc}], CLASSES, Path("unused"))
    (axes,) = drawn[0].axes
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert legend[0] == "99.9  class 1627"
    assert legend[12] == "50.0  mean"
    assert legend[24:] == ["0.0  class 0000", "middle 80 % of all"]
    assert "of 1,628" in axes.get_title("left")
    assert drawn[0].get_size_inches().max() < 10


def test_pseudo_labels_of_many_classes(drawn: list[Figure]):
    found = {
        name: {"positives": place, "negatives": 1}
        | dict.fromkeys(
            f"{sign}_{what}"
            for sign in ("positive", "negative")
            for what in ("precision", "recall")
        )
        for place, name in enumerate(CLASSES)
    }
    save_pseudo_label_picture([{"round": 1, "pseudo_labels": found}], CLASSES, Path("unused"))
    (legend,) = drawn[0].legends
    assert len(legend.get_texts()) == 24
    assert "of 1,628 classes" in legend.get_title().get_text()
    assert drawn[0].get_size_inches().max() < 12


def many_sites():
    sites = [f"user {number // 2}" for number in range(200)]
    known = torch.ones(200, MANY, dtype=torch.bool)
    labels = (torch.arange(200)[:, None] % 100 < torch.arange(MANY) % 100).to(torch.uint8)
    return build_annotation_map(labels, known, CLASSES, sites)


def test_annotation_map_of_many_sites_and_classes():
    found = many_sites()
    figure = draw_annotation_map(found)
    axes = figure.axes[0]
    assert len(axes.get_yticklabels()) == 40
    columns = [label.get_text() for label in axes.get_xticklabels()]
    assert columns[-1] == "77 others\n154 images"
    assert len(columns) == 24
    assert figure.get_size_inches().max() < 30
    assert "of 1,628 classes" in figure.get_supxlabel()
    assert len(lines_of(annotation_table(found))) < 60


def test_sums_of_the_other_sites():
    found = many_sites().of_classes([99, 1]).with_largest_sites(3)
    assert found.classes == ("class 0099", "class 0001")
    assert found.sites == ("user 0", "user 1", "user 2", "97 others")
    assert found.images == (2, 2, 2, 194)
    assert [sum(column) for column in zip(*found.positives)] == [198, 2]


def test_warnings_of_one_kind_are_counted():
    warnings = annotation_warnings(many_sites())
    assert len(warnings) < 30
    few_images = [line for line in warnings if "images" in line and line.startswith("site ")]
    assert len(few_images) == 4
    assert any(line.startswith("96 more sites have fewer than 20 images") for line in warnings)


def test_most_likely_classes_come_first():
    rows = [{"class": name, "probability": place / MANY} for place, name in enumerate(CLASSES)]
    shown = most_likely(rows)
    assert [row["class"] for row in shown[:2]] == ["class 1627", "class 1626"]
    assert len(shown) == 24
