"""Sheets of images: canvases with their labels, and where each class looks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedquilt.reports.class_map_picture import draw_image, draw_map
from fedquilt.reports.style import new_figure, picture_style, save

if TYPE_CHECKING:
    from torch import Tensor

ACROSS = 8
PANEL = 1.5  # inches


def save_canvases(images: Tensor, labels: Sequence[Sequence[str]], path: Path) -> None:
    down = math.ceil(len(images) / ACROSS)
    with picture_style():
        figure = new_figure(PANEL * min(ACROSS, len(images)), (PANEL + 0.35) * down)
        panels: Any = figure.subplots(down, min(ACROSS, len(images)), squeeze=False)
        for panel in panels.flat:
            panel.set_axis_off()
        for panel, image, names in zip(panels.flat, images, labels):
            draw_image(panel, image)
            panel.set_title("\n".join(names) or "none", fontsize=7, parse_math=False)
        save(figure, path)


def save_attention(
    images: Tensor, maps: Tensor, labels: Sequence[Sequence[str]], names: Sequence[str], path: Path
) -> None:
    """Draw a row per image: the image, then the map of every class; 1 is uniform attention.

    Args:
        images: uint8 (N, channels, height, width).
        maps: (N, C, rows, columns), each of mean 1.
        labels: the classes that each image has; their titles are bold.
        names: of all classes.
        path: the picture file.
    """
    with picture_style():
        figure = new_figure(PANEL * (len(names) + 1) + 0.6, (PANEL + 0.2) * len(images))
        panels: Any = figure.subplots(len(images), len(names) + 1, squeeze=False)
        most = float(maps.max()) or 1.0
        for row, image, own_maps, own in zip(panels, images, maps, labels):
            for panel in row:
                panel.set_axis_off()
            draw_image(row[0], image)
            row[0].set_title(", ".join(own) or "none", fontsize=7, parse_math=False)
            for panel, name, values in zip(row[1:], names, own_maps):
                draw_image(panel, image)
                shown = draw_map(panel, values, image, most)
                weight = "bold" if name in own else "normal"
                panel.set_title(name, fontsize=7, fontweight=weight, parse_math=False)
        figure.colorbar(shown, ax=panels, fraction=0.02).set_label("attention (1: uniform)")
        save(figure, path)
