"""Picture of each class's map over an image: attention, or support for the class."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedquilt.reports.style import new_figure, picture_style, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage
    from torch import Tensor

MAX_COLUMNS = 5
PANEL = 1.9  # inches


@dataclass(frozen=True)
class MapKind:
    """What a map shows."""

    what: str  # in a note on the pictures
    scale: str  # of the colours


ATTENTION = MapKind("attention maps", "attention (1: uniform)")
HEAT = MapKind("heat maps", "added to the logit by a position")


def save_class_maps(
    image: Tensor, maps: Tensor, titles: Sequence[str], path: Path, kind: MapKind
) -> None:
    """Draw the image, and once more per class with that class's map over it.

    All classes share one scale: a class with little support looks so.

    Args:
        image: uint8 (channels, height, width).
        maps: (C, rows, columns), 0 or larger, of any resolution.
        titles: one per class.
        path: the picture file.
        kind: what the maps show.
    """
    rows = math.ceil((len(titles) + 1) / MAX_COLUMNS)
    columns = math.ceil((len(titles) + 1) / rows)  # rows of nearly equal length
    with picture_style():
        figure = new_figure(PANEL * columns + 0.9, (PANEL + 0.4) * rows)
        panels = list(figure.subplots(rows, columns, squeeze=False).flat)
        for panel in panels:
            panel.set_axis_off()
        draw_image(panels[0], image)
        panels[0].set_title("image")
        most = float(maps.max()) or 1.0  # no class has any support
        for panel, title, values in zip(panels[1:], titles, maps):
            draw_image(panel, image)
            shown = draw_map(panel, values, image, most)
            panel.set_title(title, parse_math=False)  # a name may contain dollar signs
        bar = figure.colorbar(shown, ax=panels, fraction=0.05, pad=0.02)
        bar.set_label(kind.scale)
        save(figure, path)


def draw_image(axes: Axes, image: Tensor) -> None:
    if len(image) == 3:
        axes.imshow(image.permute(1, 2, 0).numpy())
    else:
        axes.imshow(image.float().mean(0).numpy(), cmap="gray", vmin=0, vmax=255)


def draw_map(axes: Axes, values: Tensor, image: Tensor, most: float) -> AxesImage:
    height, width = image.shape[1:]
    whole_image: Any = (-0.5, width - 0.5, height - 0.5, -0.5)
    return axes.imshow(
        values.numpy(),
        extent=whole_image,
        interpolation="bilinear",
        cmap="viridis",  # safe for colour blindness
        alpha=0.55,
        vmin=0,
        vmax=most,
    )
