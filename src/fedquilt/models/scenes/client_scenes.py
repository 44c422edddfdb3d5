"""A client's scenes among its weights: none yet, what is told of them, others' mixed in."""

from __future__ import annotations

import torch
from torch import Tensor

from fedquilt.tree import Weights

CENTRES, MATRICES, COUNTS = "head.centres", "head.matrices", "head.counts"
SCENES = (CENTRES, MATRICES, COUNTS)
SCORES = "head.scores.weight"  # of learnt scenes, which have no centres
ROWS = "head.weight"


def no_scenes(shared: Weights, scene_count: int) -> Weights:
    """The entries of a network whose scenes have seen no image; ``shared`` are all others."""
    rows = shared[ROWS]
    classes, features = rows.shape
    scenes = {
        MATRICES: rows.new_zeros(scene_count, classes, classes),
        COUNTS: rows.new_zeros(scene_count),
    }
    return scenes if SCORES in shared else {CENTRES: rows.new_zeros(scene_count, features)} | scenes


def told_of_scenes(weights: Weights, *, per_image: bool) -> Weights:
    """What the server mixes by: prototypes, co-occurrences, and which scenes have images.

    Co-occurrences per image do not tell how many images there are.
    """
    counts = weights[COUNTS]
    return {
        "prototypes": weights[CENTRES if CENTRES in weights else SCORES],
        "matrices": weights[MATRICES] / _images(counts.clamp(min=1), per_image),
        "used": (counts > 0).to(counts.dtype),
    }


def scene_images(scenes: Weights, image_count: int) -> Tensor:
    """(S, 1): how many different images a scene was made of, at least; none before it was."""
    if COUNTS not in scenes:
        return torch.zeros(1, 1)
    return (scenes[COUNTS] / _passes(scenes, image_count))[:, None]


def pair_images(scenes: Weights, image_count: int) -> Tensor:
    """(S, C, C, 2): likewise, and how many of them have both labels."""
    if COUNTS not in scenes:
        return torch.zeros(1, 1, 1, 1)
    both = scenes[MATRICES] / _passes(scenes, image_count)
    return torch.stack([scene_images(scenes, image_count)[..., None].expand_as(both), both], dim=3)


def _passes(scenes: Weights, image_count: int) -> Tensor:
    """How often an image was counted, at most: all are seen before one is seen again."""
    return (scenes[COUNTS].sum() / image_count).ceil().clamp(min=1)


def with_mixed(scenes: Weights, matrices: Tensor, *, per_image: bool) -> Weights:
    """Scenes whose co-occurrences are the mixed ones, on the scale that counting goes on from."""
    return {**scenes, MATRICES: matrices * _images(scenes[COUNTS], per_image)}


def _images(counts: Tensor, per_image: bool) -> Tensor:
    return (counts if per_image else torch.ones_like(counts))[:, None, None]
