"""Made-up images in FLAIR's layout: natural users, several classes an image, all annotated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from fedquilt.data.dataset import MultiLabelDataset
from fedquilt.data.source import Splits

POSITIVES_PER_IMAGE = 4  # as FLAIR's images, of 17 or of 1,628 classes


@dataclass(frozen=True)
class Size:
    """How large a run is: users with so many images each, classes, test images, pixels."""

    clients: int
    classes: int = 17
    images_each: int = 8
    test_images: int = 2000
    pixels: int = 8


def made_up(size: Size, owners: np.ndarray | None = None) -> Splits:
    """Return users of ``images_each`` images; a class is frequent or rare as in FLAIR's taxonomy.

    ``owners`` is the user of each image, if users have different numbers of them.

    The users of the test images are others, as in FLAIR.
    """
    random = np.random.default_rng(0)
    if owners is None:
        owners = np.arange(size.clients * size.images_each) // size.images_each
    test_owners = size.clients + np.arange(size.test_images) // max(1, size.images_each)
    return Splits(
        train=_part("train", owners, size, random),
        test=_part("test", test_owners, size, random),
    )


def _part(
    name: str, owners: np.ndarray, size: Size, random: np.random.Generator
) -> MultiLabelDataset:
    count = len(owners)
    frequency = 1 / np.arange(1, size.classes + 1)
    drawn = random.choice(size.classes, (count, POSITIVES_PER_IMAGE), p=frequency / frequency.sum())
    labels = np.zeros((count, size.classes), dtype=np.uint8)
    np.put_along_axis(labels, drawn, 1, axis=1)
    labels[np.arange(size.classes) % count, np.arange(size.classes)] = 1  # no class is without
    images = random.integers(0, 256, (count, 3, size.pixels, size.pixels), dtype=np.uint8)
    return MultiLabelDataset(
        images=torch.from_numpy(images),
        labels=torch.from_numpy(labels),
        known=torch.ones(labels.shape, dtype=torch.bool),
        classes=tuple(f"class {number:04d}" for number in range(size.classes)),
        ids=tuple(f"{name}-{number:07d}" for number in range(count)),
        groups=tuple(f"user-{owner:06d}" for owner in owners.tolist()),
        sites=tuple(f"user-{owner:06d}" for owner in owners.tolist()),
    )
