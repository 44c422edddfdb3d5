"""Task: classes, clients, network and length of a run; the same value on every engine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch

from fedquilt.core.tree import Weights
from fedquilt.data.augmentation.views import Preprocessing
from fedquilt.models.network import Layout, Network, layout_of, read_weights
from fedquilt.models.spec import ModelSpec
from fedquilt.training.privacy_settings import NO_NOISE, Privacy


@dataclass(frozen=True, kw_only=True)
class Task:
    classes: tuple[str, ...]
    clients: tuple[str, ...]  # the population
    image_shape: tuple[int, int, int]  # channels, height, width
    model: ModelSpec
    preprocessing: Preprocessing
    round_count: int
    seed: int
    privacy: Privacy = NO_NOISE
    sends_fixed: bool = True  # buffers that no training changes

    @property
    def class_count(self) -> int:
        return len(self.classes)

    def build_network(self) -> Network:
        return self.model.build(
            channels=self.image_shape[0],
            class_count=self.class_count,
            seed=self.seed,
            class_names=self.classes,
        )

    @cached_property
    def layout(self) -> Layout:
        return layout_of(self.build_network(), self.class_count, sends_fixed=self.sends_fixed)

    @cached_property
    def fixed_buffers(self) -> Weights:
        """The buffers that are not sent, as every client builds them."""
        weights = read_weights(self.build_network())
        return {name: weights[name] for name in self.layout.fixed}

    @cached_property
    def feature_count(self) -> int:
        network = self.build_network().eval()
        with torch.no_grad():
            return int(network(torch.zeros(1, *self.image_shape)).features.shape[1])
