"""Scenes of several clients: each one's co-occurrences, enriched by similar scenes elsewhere."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from fedquilt.tree import Weights

Scenes = Mapping[str, Weights]  # by client: prototypes (S, d), matrices (S, C, C), used (S,)


def mixed_matrices(scenes: Scenes) -> Weights:
    """Every client's matrices after (M + sum of cos_j M_j) / (1 + sum of cos_j).

    From each other client j comes the scene most like this one, by the cosine of prototypes, if
    that is positive. Clients may have different numbers of scenes. A scene without images gives
    nothing and gets nothing: its prototype stands for no image.
    """
    return {name: _mixed(name, scenes) for name in scenes}


def _mixed(name: str, scenes: Scenes) -> Tensor:
    own = scenes[name]
    total, weight = own["matrices"].double(), torch.ones_like(own["used"]).double()
    for other in sorted(scenes.keys() - {name}):
        cosine, place = _most_similar(own, scenes[other])
        total = total + cosine[:, None, None] * scenes[other]["matrices"][place]
        weight = weight + cosine
    return (total / weight[:, None, None]).to(own["matrices"].dtype)


def _most_similar(own: Weights, other: Weights) -> tuple[Tensor, Tensor]:
    """The largest cosine for each of one's own scenes, 0 where none counts, and whose it is."""
    one, two = (F.normalize(each["prototypes"].double(), dim=1) for each in (own, other))
    counted = (own["used"] > 0)[:, None] & (other["used"] > 0)
    cosine, place = torch.where(counted, one @ two.T, 0.0).clamp(0.0, 1.0).max(1)
    return cosine, place
