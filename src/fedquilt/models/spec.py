"""ModelSpec: the network to build, as a value that a recipe holds."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import torch
from torch import nn

from fedquilt.core.errors import UserError
from fedquilt.core.own_code import remember
from fedquilt.core.seeding import seed_for
from fedquilt.core.settings import added
from fedquilt.models.backbones import build_backbone, feature_count
from fedquilt.models.class_names.text_vectors import with_stored_vectors
from fedquilt.models.colour_stem import with_colour_stem
from fedquilt.models.feature_map import map_width
from fedquilt.models.group_norm import with_group_norm
from fedquilt.models.heads import MAP_HEADS, SOFTMAX, Setting, build_named_head
from fedquilt.models.network import Network
from fedquilt.models.projection import project
from fedquilt.models.trained_part import TrainedPart, train_only
from fedquilt.models.weights import load_backbone

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """A backbone, its initial weights, its head, and the normalisation of its images."""

    # a built-in name, a timm model name or, in Python, a function from channels to a network
    backbone: str | Callable[[int], nn.Module] = "small-cnn"
    weights: str = "random"  # or "timm", or the path of a .safetensors file
    small_stem: bool = False  # stride 1 in a ResNet's first convolution, for 64 px and below
    mean: tuple[float, ...] = (0.5,)  # one for all channels, or one per channel; pixels in 0..1
    std: tuple[float, ...] = (0.5,)
    head: str = "linear"  # a name of models/heads; methods that need another head set it
    head_settings: Mapping[str, Setting] = field(default_factory=dict)  # options of that head
    projection: int | None = None  # width of a projection between backbone and head, if any
    train: TrainedPart = added("all")  # "head", "last-block" or "lora": the rest stays as it is
    lora_rank: int = added(8)  # of the adapters, if "lora" is trained
    norm: Literal["as built", "group"] = added("as built")  # group: in place of batch norm
    colour_stem: bool = added(False)  # grey images pass a trained convolution to three channels

    def __post_init__(self) -> None:
        if callable(self.backbone):  # a recipe holds its name
            object.__setattr__(self, "backbone", remember(self.backbone))

    @property
    def backbone_name(self) -> str:
        return str(self.backbone)

    def build(
        self, *, channels: int, class_count: int, seed: int, class_names: Sequence[str] = ()
    ) -> Network:
        """Build the network; the same seed gives the same bits.

        The global random generators are left unchanged.
        """
        self._check(channels)
        with torch.random.fork_rng(devices=()), torch.device("cpu"):
            # torch.manual_seed would also reseed the accelerators, which fork_rng does not restore.
            torch.default_generator.manual_seed(seed_for(seed, "backbone"))
            has_stem = self.colour_stem and channels == 1
            backbone = build_backbone(
                self.backbone_name,
                3 if has_stem else channels,
                small_stem=self.small_stem,
                pretrained=self.weights == "timm",
            )
            if self.weights not in ("random", "timm"):
                report = load_backbone(backbone, Path(self.weights))
                log.log(logging.WARNING if report.unmatched else logging.INFO, "%s", report)
            if has_stem:
                backbone = with_colour_stem(backbone, seed_for(seed, "colour stem"))
            if self.norm == "group":
                backbone = with_group_norm(backbone)
            if self.projection is not None:
                backbone = project(backbone, self.projection, seed)
            names = class_names or [f"class {number}" for number in range(class_count)]
            torch.default_generator.manual_seed(seed_for(seed, "head layers"))
            width = map_width(backbone) if self.head in MAP_HEADS else feature_count(backbone)
            head = build_named_head(self.head, self.head_settings, width, names, seed)
            network = Network(backbone, head)
            torch.default_generator.manual_seed(seed_for(seed, "adapters"))
            train_only(network, self.train, self.lora_rank)
        return network

    def for_loading(self) -> ModelSpec:
        """Return a spec for a network whose weights are loaded next.

        Building it downloads no initial weights and runs no text encoder; its layout has all
        weights, also those that were not trained.
        """
        return replace(
            self,
            weights="random",
            head_settings=with_stored_vectors(self.head_settings),
            train="all",
        )

    def with_softmax(self) -> ModelSpec:
        """Return the spec with a softmax head, for images of one class each."""
        if self.head not in ("linear", SOFTMAX):
            raise UserError(
                f"model.head must be 'linear' for images of one class each, found {self.head!r}"
            )
        return replace(self, head=SOFTMAX)

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
