"""Features of a public, frozen network, computed once: a table of 1 x 1 pixel with 512 channels.

Training a linear head on them is what ``model.train = "head"`` does with views that change nothing.
Features are stored in 8 bits of a fixed range, which depends on no image.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedquilt.models.spec import ModelSpec

Bytes = npt.NDArray[np.uint8]
SIDE = 64  # pixels, of the images that the network was trained on
TOP = 4.0  # of the range; one feature in a thousand is larger on photographs
WEIGHTS = "resnet18.safetensors"  # of TinyImageNet
TABLE: dict[str, Any] = {"mean": [0.0], "std": [1 / TOP]}  # as the network gave them


class Features(nn.Module):
    """The table itself."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.num_features = channels

    def forward(self, table: Tensor) -> Tensor:
        return table.flatten(1)


def stored_features(folder: Path, name: str, pixels: Bytes) -> Bytes:
    """Return the features of images (N, 1 or 3, height, width), (N, 512, 1, 1) in 8 bits."""
    path = folder / "features" / f"{name}.npy"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, _computed(folder / WEIGHTS, torch.from_numpy(pixels)), allow_pickle=False)
    stored: Bytes = np.load(path, allow_pickle=False)
    return stored


def _computed(weights: Path, pixels: Tensor) -> Bytes:
    spec = ModelSpec(backbone="resnet18", weights=str(weights), small_stem=True)
    backbone = spec.build(channels=3, class_count=1, seed=0).backbone.eval()
    found = []
    with torch.inference_mode():
        for some in pixels.split(50):
            images = F.interpolate(some.float(), (SIDE, SIDE), mode="bilinear") / 255
            found.append(backbone((images.expand(-1, 3, -1, -1) - 0.5) / 0.5))
    levels = (torch.cat(found) * (255 / TOP)).round().clamp(0, 255).to(torch.uint8)
    return np.asarray(levels[:, :, None, None])
