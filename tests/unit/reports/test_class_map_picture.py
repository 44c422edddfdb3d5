"""Maps of classes drawn over an image."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image

from fedquilt.reports import class_map_picture
from fedquilt.reports.class_map_picture import HEAT, save_class_maps

MAPS = torch.tensor([[[1.0, 1.0], [1.0, 1.0]], [[0.0, 3.0], [1.0, 0.0]]])
TITLES = ("mass: 3.0 %", "$x_$: 90.0 %")


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    figures: list[Figure] = []
    monkeypatch.setattr(class_map_picture, "save", lambda figure, path: figures.append(figure))
    return figures


def test_every_class_is_drawn_over_the_image_on_one_scale(drawn: list[Figure]) -> None:
    image = torch.arange(3 * 4 * 6, dtype=torch.uint8).reshape(3, 4, 6)
    save_class_maps(image, MAPS, TITLES, Path("unused.png"), HEAT)
    plain, *classes, _bar = drawn[0].axes
    assert [axes.get_title("left") for axes in (plain, *classes)] == ["image", *TITLES]
    (only,) = plain.images
    assert np.array_equal(only.get_array(), image.permute(1, 2, 0).numpy())
    for axes, expected in zip(classes, ([[1, 1], [1, 1]], [[0, 3], [1, 0]])):
        under, over = axes.images
        assert np.array_equal(under.get_array(), only.get_array())
        assert over.get_array().tolist() == expected
        assert over.get_clim() == (0, 3)
        assert over.get_extent() == under.get_extent()


def test_grey_images_are_grey_and_many_classes_fill_several_rows(drawn: list[Figure]) -> None:
    image = torch.full((1, 4, 4), 7, dtype=torch.uint8)
    save_class_maps(image, torch.full((9, 1, 1), 1.0), ["class"] * 9, Path("unused.png"), HEAT)
    assert drawn[0].axes[0].images[0].get_array().tolist() == [[7.0] * 4] * 4
    tops = {round(axes.get_subplotspec().rowspan.start) for axes in drawn[0].axes[:10]}
    assert tops == {0, 1}  # ten panels, two rows of five


def test_maps_without_any_support_are_drawn_on_a_scale(drawn: list[Figure]) -> None:
    image = torch.zeros(1, 4, 4, dtype=torch.uint8)
    save_class_maps(image, torch.zeros(1, 2, 2), ["absent"], Path("unused.png"), HEAT)
    assert drawn[0].axes[1].images[1].get_clim() == (0, 1)
    assert drawn[0].axes[-1].get_ylabel() == HEAT.scale


def test_the_file_is_a_picture(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "attention.png"
    save_class_maps(torch.zeros(1, 8, 8, dtype=torch.uint8), MAPS, TITLES, path, HEAT)
    with Image.open(path) as picture:
        assert min(picture.size) > 250
