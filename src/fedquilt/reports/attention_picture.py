"""Where each class looks in an image: its attention laid over the image."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedquilt.reports.style import house_style, new_figure, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage
    from torch import Tensor

MOST_COLUMNS = 5
PANEL = 1.9  # inches


def save_attention_picture(image: Tensor, maps: Tensor, titles: Sequence[str], path: Path) -> None:
    """Draw the image as it is, and once per class with that class's attention on it.

    All classes share one scale, on which 1 is attention spread evenly over the image.

    Args:
        image: uint8 (channels, height, width).
        maps: (C, rows, columns), each summing to 1, of any resolution.
        titles: one per class.
    """
    rows = math.ceil((len(titles) + 1) / MOST_COLUMNS)
    columns = math.ceil((len(titles) + 1) / rows)  # panels as evenly in rows as they go
    shares = maps * maps[0].numel()
    with house_style():
        figure = new_figure(PANEL * columns + 0.9, (PANEL + 0.25) * rows)
        panels = list(figure.subplots(rows, columns, squeeze=False).flat)
        for panel in panels:
            panel.set_axis_off()
        _draw_image(panels[0], image)
        panels[0].set_title("image")
        for panel, title, share in zip(panels[1:], titles, shares):
            _draw_image(panel, image)
            shown = _draw_share(panel, share, image, float(shares.max()))
            panel.set_title(title, parse_math=False)  # a name may contain dollars
        bar = figure.colorbar(shown, ax=panels, fraction=0.05, pad=0.02)
        bar.set_label("attention (1: spread evenly)")
        save(figure, path)


def _draw_image(axes: Axes, image: Tensor) -> None:
    if len(image) == 3:
        axes.imshow(image.permute(1, 2, 0).numpy())
    else:
        axes.imshow(image.float().mean(0).numpy(), cmap="gray", vmin=0, vmax=255)


def _draw_share(axes: Axes, share: Tensor, image: Tensor, most: float) -> AxesImage:
    height, width = image.shape[1:]
    over_all: Any = (-0.5, width - 0.5, height - 0.5, -0.5)
    return axes.imshow(
        share.numpy(),
        extent=over_all,
        interpolation="bilinear",
        cmap="viridis",  # as safe for colour blindness as the house's other colours
        alpha=0.55,
        vmin=0,
        vmax=most,
    )
