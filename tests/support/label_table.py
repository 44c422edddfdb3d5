"""LabelTable: labels without images, for tests of partitions and annotation rules."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class LabelTable:
    """The smallest ``fedquilt.data.dataset.LabelView``."""

    labels: Tensor  # (N, C) uint8, meaningful only where known
    known: Tensor  # (N, C) bool
    classes: tuple[str, ...]
    groups: tuple[str, ...] | None = None
    sites: tuple[str, ...] | None = None


def table(labels: Tensor | list[list[int]], known: Tensor | None = None) -> LabelTable:
    labels = torch.as_tensor(labels, dtype=torch.uint8)
    known = torch.ones_like(labels, dtype=torch.bool) if known is None else known
    return LabelTable(
        labels=labels, known=known, classes=tuple("abcdefghijklmnopqrst")[: labels.shape[1]]
    )


def random_table(images: int = 600, classes: int = 6, seed: int = 0) -> LabelTable:
    """Rare and frequent classes, a fifth of the entries unannotated, 4 sites and 97 patients."""
    generator = torch.Generator().manual_seed(seed)
    shares = torch.linspace(0.05, 0.5, classes)
    labels = (torch.rand(images, classes, generator=generator) < shares).to(torch.uint8)
    known = torch.rand(images, classes, generator=generator) < 0.8
    return replace(
        table(labels, known),
        sites=tuple(f"site {row % 4}" for row in range(images)),
        groups=tuple(f"patient {row % 97}" for row in range(images)),
    )


def composites(classes: int, singles: int, per_pair: int) -> LabelTable:
    """Like FedNCA-ML's data: images of one class and of every pair of classes."""
    rows = [[c] for c in range(classes) for _ in range(singles)]
    rows += [list(pair) for pair in combinations(range(classes), 2) for _ in range(per_pair)]
    labels = torch.zeros(len(rows), classes, dtype=torch.uint8)
    for row, positives in enumerate(rows):
        labels[row, positives] = 1
    return table(labels)
