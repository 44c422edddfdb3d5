"""Scene-GCN's scenes: k-means centres, what clients send of them, how they are mixed."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from fedquilt.core.tree import Weights

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


def first_centres(features: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """k-means++: a random image's features, then each time one's that is far from all before.

    Where there are fewer different images than scenes, the last scenes repeat earlier ones.
    """
    points = features.to("cpu", torch.float64)
    chosen = [int(torch.randint(len(points), (), generator=generator))]
    distances = torch.full((len(points),), torch.inf, dtype=torch.float64)
    while len(chosen) < count:
        newest = (points - points[chosen[-1]]).square().sum(1)
        distances = torch.minimum(distances, newest)
        chances = distances if bool(distances.any()) else torch.ones_like(distances)
        chosen.append(int(torch.multinomial(chances, 1, generator=generator)))
    return features[chosen]


def nearest_centre(features: Tensor, centres: Tensor) -> Tensor:
    """The scene of each image, (B,), by squared Euclidean distance."""
    return (features[:, None] - centres).square().sum(2).argmin(1)


def moved_centres(centres: Tensor, counts: Tensor, features: Tensor, members: Tensor) -> Tensor:
    """Running means: (n c + sum of new features) / (n + how many), scene by scene.

    ``counts`` (S,) are the images before these; ``members`` (B, S) is 1 where an image is in a
    scene. A scene without a new image stays where it is.
    """
    new = members.sum(0)
    sums = counts[:, None] * centres + (members[:, :, None] * features[:, None]).sum(0)
    return torch.where((new > 0)[:, None], sums / (counts + new).clamp(min=1)[:, None], centres)


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
