"""ModelSpec: which network a study trains, as a value that a recipe can hold."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import nn

from fedquilt.errors import UserError
from fedquilt.models.backbones import build_backbone, feature_count
from fedquilt.models.head import build_head
from fedquilt.models.network import Network
from fedquilt.models.projection import project
from fedquilt.models.sphere import build_sphere_head
from fedquilt.models.weights import load_backbone
from fedquilt.seeding import seed_for

log = logging.getLogger(__name__)

HEADS: dict[str, Callable[[int, int, int], nn.Module]] = {
    "linear": build_head,
    "sphere": build_sphere_head,
}


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """A backbone, its initial weights, and the mean and deviation its images are normalised by."""

    backbone: str = "small-cnn"  # a built-in name or any name of timm
    weights: str = "random"  # or "timm", or the path of a .safetensors file
    small_stem: bool = False  # stride 1 in a ResNet's first convolution, for 64 px and below
    mean: tuple[float, ...] = (0.5,)  # one for all channels, or one per channel; pixels in 0..1
    std: tuple[float, ...] = (0.5,)
    head: Literal["linear", "sphere"] = "linear"  # sphere: fixed orthonormal rows, for SphereFed
    projection: int | None = None  # width of a projection between backbone and head, if any

    def build(self, *, channels: int, class_count: int, seed: int) -> Network:
        """The same seed gives the same bits; the global generators are left as they were."""
        self._check(channels)
        with torch.random.fork_rng(devices=()), torch.device("cpu"):
            # torch.manual_seed would also reseed the accelerators, which fork_rng does not restore.
            torch.default_generator.manual_seed(seed_for(seed, "backbone"))
            backbone = build_backbone(
                self.backbone,
                channels,
                small_stem=self.small_stem,
                pretrained=self.weights == "timm",
            )
            if self.weights not in ("random", "timm"):
                report = load_backbone(backbone, Path(self.weights))
                log.log(logging.WARNING if report.unmatched else logging.INFO, "%s", report)
            if self.projection is not None:
                backbone = project(backbone, self.projection, seed)
            head = HEADS[self.head](feature_count(backbone), class_count, seed)
        return Network(backbone, head)

    def _check(self, channels: int) -> None:
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (1, channels):
                raise UserError(
                    f"model.{name} has {len(values)} values for images of {channels} channels; "
                    f"give 1 or {channels}"
                )
        if min(self.std) <= 0:
            raise UserError(f"model.std must be positive, found {self.std}")
        if self.projection is not None and self.projection < 1:
            raise UserError(f"model.projection must be positive, found {self.projection}")
