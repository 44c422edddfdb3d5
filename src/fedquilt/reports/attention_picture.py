"""Picture of each class's attention map over an image."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedquilt.reports.style import new_figure, picture_style, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage
    from torch import Tensor

MAX_COLUMNS = 5
PANEL = 1.9  # inches


def save_attention_picture(image: Tensor, maps: Tensor, titles: Sequence[str], path: Path) -> None:
    """Draw the image, and once more per class with that class's attention over it.

    All classes share one scale, on which 1 is uniform attention.

    Args:
        image: uint8 (channels, height, width).
        maps: (C, rows, columns), each summing to 1, of any resolution.
        titles: one per class.
        path: the picture file.
    """
    rows = math.ceil((len(titles) + 1) / MAX_COLUMNS)
    columns = math.ceil((len(titles) + 1) / rows)  # rows of nearly equal length
    shares = maps * maps[0].numel()
    with picture_style():
        figure = new_figure(PANEL * columns + 0.9, (PANEL + 0.25) * rows)
        panels = list(figure.subplots(rows, columns, squeeze=False).flat)
        for panel in panels:
            panel.set_axis_off()
        _draw_image(panels[0], image)
        panels[0].set_title("image")
        for panel, title, share in zip(panels[1:], titles, shares):
            _draw_image(panel, image)
            shown = _draw_share(panel, share, image, float(shares.max()))
            panel.set_title(title, parse_math=False)  # a name may contain dollar signs
        bar = figure.colorbar(shown, ax=panels, fraction=0.05, pad=0.02)
        bar.set_label("attention (1: uniform)")
        save(figure, path)


def _draw_image(axes: Axes, image: Tensor) -> None:
    if len(image) == 3:
        axes.imshow(image.permute(1, 2, 0).numpy())
    else:
        axes.imshow(image.float().mean(0).numpy(), cmap="gray", vmin=0, vmax=255)


def _draw_share(axes: Axes, share: Tensor, image: Tensor, most: float) -> AxesImage:
    height, width = image.shape[1:]
    whole_image: Any = (-0.5, width - 0.5, height - 0.5, -0.5)
    return axes.imshow(
        share.numpy(),
        extent=whole_image,
        interpolation="bilinear",
        cmap="viridis",  # safe for colour blindness
        alpha=0.55,
        vmin=0,
        vmax=most,
    )
