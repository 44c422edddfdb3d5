"""The annotation map in the terminal and as a picture."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
import torch
from PIL import Image
from rich.console import Console

from fedquilt.data.checks.annotation_map import AnnotationMap, build_annotation_map
from fedquilt.reports.annotation_picture import (
    annotation_table,
    draw_annotation_map,
    save_annotation_picture,
    short,
)


def make_map(site_count: int, class_count: int) -> AnnotationMap:
    """Site s annotates every class but number s; all its 12 images are positive."""
    sites = [f"Hospital number {row // 12}" for row in range(12 * site_count)]
    known = torch.ones(len(sites), class_count, dtype=torch.bool)
    for row in range(len(sites)):
        known[row, (row // 12) % class_count] = False
    classes = [f"Finding_with_name_{index}" for index in range(class_count)]
    return build_annotation_map(torch.ones_like(known, dtype=torch.uint8), known, classes, sites)


def printed(found: AnnotationMap) -> str:
    text = StringIO()
    Console(file=text, width=100, no_color=True).print(annotation_table(found))
    return text.getvalue()


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (999, "999"), (1000, "1.0k"), (9949, "9.9k"), (9950, "10k"), (999_499, "999k"),
     (999_500, "1.0M")],
)  # fmt: skip
def test_short_numbers(count: int, text: str) -> None:
    assert short(count) == text


@pytest.mark.parametrize(("sites", "classes"), [(1, 5), (3, 5), (8, 14), (20, 14)])
def test_table_fits_100_columns_and_names_every_class(sites: int, classes: int) -> None:
    text = printed(make_map(sites, classes))
    assert max(map(len, text.splitlines())) <= 100
    assert all(f"Finding_with_name_{index} " in text for index in range(classes))


def test_table_cells() -> None:
    rows = printed(make_map(3, 5)).splitlines()
    first, last = (next(row for row in rows if f"name_{index} " in row).split() for index in (0, 4))
    assert first[1:] == ["–", "12/12", "▲", "12/12", "▲", "24/24"]  # only 1s
    assert last[1:] == [*["12/12", "▲"] * 3, "36/36"]


def test_picture_shows_every_cell(tmp_path: Path) -> None:
    found = make_map(3, 5)
    (axes, _) = draw_annotation_map(found).axes
    texts = [text.get_text() for text in axes.texts]
    assert texts == ["12 / 12 ▲"] * 12  # 15 cells, of which 3 are not annotated
    assert len(axes.patches) == 3  # hatched; none is below the floor of 10
    save_annotation_picture(found, tmp_path / "map.png")
    with Image.open(tmp_path / "map.png") as picture:
        assert min(picture.size) > 400


def test_dollars_in_names_are_not_formulas(tmp_path: Path) -> None:
    known = torch.ones(2, 1, dtype=torch.bool)
    found = build_annotation_map(known.to(torch.uint8), known, ("$\\bad$",), ("$x_$", "y"))
    save_annotation_picture(found, tmp_path / "map.png")
    assert (tmp_path / "map.png").is_file()
