"""Scene-GCN's scenes: k-means centres, what a client sends of them, mixing across clients.

A scene is a group of similar images; S of them have a prototype, the co-occurrence matrix of the
labels and the number of images counted so far.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sized
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from fedquilt.core.payload import PerClient
from fedquilt.core.tree import Weights, as_branch, from_branch
from fedquilt.models.network import Output

CENTRES, MATRICES, COUNTS = "head.centres", "head.matrices", "head.counts"
SCENES = (CENTRES, MATRICES, COUNTS)
SCORES = "head.scores.weight"  # the prototypes of learnt scenes, which have no centres
ROWS = "head.weight"
Scenes: TypeAlias = Mapping[str, Weights]  # by client, see scene_summaries


def initial_centres(features: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """k-means++: draw features of one image, then repeatedly of one far from all drawn before.

    If there are fewer distinct images than scenes, the last centres repeat earlier ones.
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


def with_centres(weights: Weights, features: Tensor, generator: torch.Generator) -> Weights:
    """Return the weights with a centre for each scene, chosen among these images."""
    return weights | {CENTRES: initial_centres(features, len(weights[COUNTS]), generator)}


def first_scenes(
    shared: Weights,
    count: int,
    predict: Callable[[Weights, str], Output],
    generator: torch.Generator,
) -> Weights:
    """Return the weights with a client's scenes before its first round; learnt ones are empty."""
    weights = shared | empty_scenes(shared, count)
    if SCORES in shared:
        return weights
    return with_centres(weights, predict(weights, "plain").features, generator)


def nearest_centre(features: Tensor, centres: Tensor) -> Tensor:
    """Return the scene of each image, (B,), by squared Euclidean distance."""
    return (features[:, None] - centres).square().sum(2).argmin(1)


def updated_centres(centres: Tensor, counts: Tensor, features: Tensor, members: Tensor) -> Tensor:
    """Running means, per scene: (n c + sum of new features) / (n + number of new images).

    ``counts`` (S,) are the images before these; ``members`` (B, S) is 1 where an image is in a
    scene. A centre without a new image is left unchanged.
    """
    new = members.sum(0)
    sums = counts[:, None] * centres + (members[:, :, None] * features[:, None]).sum(0)
    return torch.where((new > 0)[:, None], sums / (counts + new).clamp(min=1)[:, None], centres)


def empty_scenes(shared: Weights, scene_count: int) -> Weights:
    """Return a head's scene entries before any image; ``shared`` are all other entries."""
    rows = shared[ROWS]
    classes, features = rows.shape
    scenes = {
        MATRICES: rows.new_zeros(scene_count, classes, classes),
        COUNTS: rows.new_zeros(scene_count),
    }
    return scenes if SCORES in shared else {CENTRES: rows.new_zeros(scene_count, features)} | scenes


def scene_summaries(weights: Weights, *, per_image: bool) -> Weights:
    """Return what the server needs for mixing: prototypes (S, d), matrices (S, C, C), used (S,).

    Co-occurrences per image do not reveal the number of images.
    """
    counts = weights[COUNTS]
    return {
        "prototypes": weights[CENTRES if CENTRES in weights else SCORES],
        "matrices": weights[MATRICES] / _images(counts.clamp(min=1), per_image),
        "used": (counts > 0).to(counts.dtype),
    }


def empty_summaries(shared: Weights, scene_count: int) -> Weights:
    """Return the summaries of scenes without any image: their names, shapes and dtypes."""
    return scene_summaries(shared | empty_scenes(shared, scene_count), per_image=True)


def with_mixed(scenes: Weights, mixed: Weights, *, per_image: bool) -> Weights:
    """Return the scenes with mixed matrices, scaled back to counts so that counting can go on.

    ``mixed`` is empty until the client has sent its scenes once.
    """
    if not mixed:
        return scenes
    return {**scenes, MATRICES: mixed["matrices"] * _images(scenes[COUNTS], per_image)}


def _images(counts: Tensor, per_image: bool) -> Tensor:
    return (counts if per_image else torch.ones_like(counts))[:, None, None]


def scene_images(data: Sized, state: Mapping[str, Any]) -> Tensor:
    """(S, 1): a lower bound of the distinct images in each scene; 0 before the first round."""
    scenes: Weights = state.get("scenes", {})
    if COUNTS not in scenes:
        return torch.zeros(1, 1)
    return (scenes[COUNTS] / _passes(scenes, len(data)))[:, None]


def pair_images(data: Sized, state: Mapping[str, Any]) -> Tensor:
    """(S, C, C, 2): the bound of ``scene_images``, and that of its images with both labels."""
    scenes: Weights = state.get("scenes", {})
    if COUNTS not in scenes:
        return torch.zeros(1, 1, 1, 1)
    both = scenes[MATRICES] / _passes(scenes, len(data))
    return torch.stack([scene_images(data, state)[..., None].expand_as(both), both], dim=3)


# The images that each summary is computed from.
IMAGES_OF_SUMMARIES = {"prototypes": scene_images, "matrices": pair_images, "used": scene_images}


def _passes(scenes: Weights, image_count: int) -> Tensor:
    """Return how often an image was counted at most: an epoch sees each image once."""
    return (scenes[COUNTS].sum() / image_count).ceil().clamp(min=1)


def by_client(summaries: Mapping[str, Weights]) -> dict[str, Weights]:
    """Return the summaries that clients sent, by names that the server's state can have."""
    return {as_branch(name): each for name, each in summaries.items()}


def mixed_scenes(scenes: Scenes) -> PerClient:
    """Address to each client its mixed matrices; a client that never sent scenes gets none."""
    mixed = mixed_matrices(scenes)
    own = {from_branch(name): {"matrices": matrices} for name, matrices in mixed.items()}
    return PerClient(own, newcomer={})


def mixed_matrices(scenes: Scenes) -> Weights:
    """Return every client's matrices mixed with others': (M + sum cos_j M_j) / (1 + sum cos_j).

    Each other client j contributes its scene with the most similar prototype, if the cosine is
    positive. Clients may have different numbers of scenes. A scene without images is left
    unchanged and contributes nothing: its prototype represents no image.
    """
    return {name: _mixed(name, scenes) for name in scenes}


def _mixed(name: str, scenes: Scenes) -> Tensor:
    own = scenes[name]
    total, weight = own["matrices"].double(), torch.ones_like(own["used"]).double()
    for other in sorted(scenes.keys() - {name}):
        cosine, index = _most_similar(own, scenes[other])
        total = total + cosine[:, None, None] * scenes[other]["matrices"][index]
        weight = weight + cosine
    return (total / weight[:, None, None]).to(own["matrices"].dtype)


def _most_similar(own: Weights, other: Weights) -> tuple[Tensor, Tensor]:
    """For each own scene, the largest cosine (0 if none is positive) and the other's index."""
    one, two = (F.normalize(each["prototypes"].double(), dim=1) for each in (own, other))
    counted = (own["used"] > 0)[:, None] & (other["used"] > 0)
    cosine, index = torch.where(counted, one @ two.T, 0.0).clamp(0.0, 1.0).max(1)
    return cosine, index
