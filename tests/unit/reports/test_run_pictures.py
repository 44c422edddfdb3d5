"""Pictures of a run show its history."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from matplotlib.figure import Figure
from support.tiny_runs import make_run, tiny_settings

from fedquilt.recipes.recipe import recipe_from
from fedquilt.reports import run_pictures as pictures
from fedquilt.reports.run_pictures import (
    annotation_map_of,
    save_class_curves,
    save_pseudo_label_picture,
    save_run_pictures,
)
from fedquilt.reports.style import line_style
from fedquilt.runs import experiment
from fedquilt.runs.finished_run import read_run

CLASSES = ("mass", "nodule")


def records() -> list[dict[str, Any]]:
    filled = {"positives": 4, "negatives": 9, "positive_precision": 0.5, "positive_recall": None}
    filled |= {"negative_precision": 1.0, "negative_recall": 0.25}
    return [
        {"round": 1, "per_class_auc": {"mass": 0.5, "nodule": None}},
        {"round": 2},  # not evaluated
        {
            "round": 3,
            "per_class_auc": {"mass": 0.6, "nodule": 0.9},
            "pseudo_labels": {"mass": filled, "nodule": filled | {"positives": 7}},
        },
    ]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    figures: list[Figure] = []
    monkeypatch.setattr(pictures, "save", lambda figure, path: figures.append(figure))
    return figures


def test_curves_have_a_ranked_legend_and_gaps(drawn: list[Figure]):
    save_class_curves(records(), CLASSES, Path("unused.png"))
    (axes,) = drawn[0].axes
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert legend == ["90.0  nodule", "75.0  mean", "60.0  mass"]
    mass, nodule, mean = axes.lines[:3]
    assert list(mass.get_xdata()) == [1, 3]
    assert list(mass.get_ydata()) == pytest.approx([50, 60])
    assert math.isnan(nodule.get_ydata()[0])
    assert list(mean.get_ydata()) == pytest.approx([50, 75])
    assert mean.get_linewidth() > 2 * mass.get_linewidth()


def test_pseudo_labels_have_number_precision_and_recall(drawn: list[Figure]):
    save_pseudo_label_picture(records(), CLASSES, Path("unused.png"))
    shown = {axes.get_title("left"): axes for axes in drawn[0].axes}
    assert len(shown) == 5
    assert "filled in as present: recall (%)" not in shown  # undefined for every class
    present = shown["filled in as present: number"]
    assert [line.get_ydata()[0] for line in present.lines] == [4, 7]
    assert shown["filled in as absent: recall (%)"].lines[0].get_ydata()[0] == 25
    (legend,) = drawn[0].legends
    assert [text.get_text() for text in legend.get_texts()] == list(CLASSES)


def test_pseudo_labels_whose_truth_is_unknown_have_numbers_only(drawn: list[Figure]):
    filled = dict.fromkeys(("positive_precision", "positive_recall"))
    filled |= dict.fromkeys(("negative_precision", "negative_recall"))
    history = [
        {"round": 1, "pseudo_labels": {"mass": filled | {"positives": 0, "negatives": count}}}
        for count in (0, 3)
    ]
    save_pseudo_label_picture(history, ("mass",), Path("unused.png"))
    (axes,) = drawn[0].axes
    assert axes.get_title("left") == "filled in as absent: number"
    assert list(axes.lines[0].get_ydata()) == [0, 3]


def test_no_picture_of_pseudo_labels_without_any(tmp_path: Path):
    """The warm-up never ends: nothing is filled in."""
    settings = tiny_settings()
    method = settings["method"] | {"warmup_rounds": 5}
    experiment.run(recipe_from(settings | {"method": method}), tmp_path / "run")
    run = read_run(tmp_path / "run")
    assert all(record["pseudo_labels"] for record in run.history)
    assert [path.name for path in save_run_pictures(run)] == ["class-curves.png"]


def test_fourteen_classes_have_fourteen_line_styles():
    looks = {(look["color"], look["linestyle"]) for look in (line_style(p, 99) for p in range(14))}
    assert len(looks) == 14
    assert "marker" in line_style(0, 1)


def test_a_run_gets_the_pictures_that_apply(tmp_path: Path):
    settings = dict(matplotlib.rcParams)
    run = make_run(tmp_path / "run", "fedavg")
    train = run.recipe.data.load(tmp_path).train
    names = [path.name for path in save_run_pictures(run, train)]
    assert names == ["class-curves.png", "annotation-map.png"]
    assert [path.name for path in save_run_pictures(run)] == ["class-curves.png"]
    for name in names:
        assert (run.folder.pictures / name).read_bytes().startswith(b"\x89PNG")
    assert dict(matplotlib.rcParams) == settings


def test_the_annotation_map_counts_annotated_labels(tmp_path: Path):
    run = make_run(tmp_path / "run", "fedavg")
    train = run.recipe.data.load(tmp_path).train
    found = annotation_map_of(run.allocation, train)
    assert found.images == (10, 10, 10)
    assert found.annotated == ((10, 0, 0), (0, 10, 0), (0, 0, 10))
    for row, holding in enumerate(run.allocation.holdings):
        positives = int(train.labels[holding.indices, row].sum())
        assert found.positives[row][row] == positives
        assert sum(found.positives[row]) == positives
