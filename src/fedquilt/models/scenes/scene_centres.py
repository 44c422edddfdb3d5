"""Scenes as the centres of k-means: where they start, and how they follow the images."""

from __future__ import annotations

import torch
from torch import Tensor


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
