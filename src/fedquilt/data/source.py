"""Source: where a data set comes from, as a value that a recipe can hold."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from fedquilt.data.dataset import MultiLabelDataset


@dataclass(frozen=True, kw_only=True)
class Splits:
    """What a source delivers; no patient is in both parts."""

    train: MultiLabelDataset
    test: MultiLabelDataset


@dataclass(frozen=True, kw_only=True)
class Source(ABC):
    """Settings are fields; ``load`` reads, decodes into ``cache`` if needed, and splits."""

    @abstractmethod
    def load(self, cache: Path) -> Splits: ...


def complete_part(
    images: Tensor, labels: Tensor, classes: tuple[str, ...], ids: tuple[str, ...]
) -> MultiLabelDataset:
    """``labels`` is (N, C) uint8."""
    known = torch.ones(labels.shape, dtype=torch.bool)
    return MultiLabelDataset(images=images, labels=labels, known=known, classes=classes, ids=ids)


def numbered(name: str, count: int) -> tuple[str, ...]:
    """``name-00000`` and so on, for images that are published without names."""
    return tuple(f"{name}-{row:05d}" for row in range(count))


def complete_splits(arrays: Mapping[str, Tensor], classes: tuple[str, ...]) -> Splits:
    """From ``train_images``, ``train_labels`` (N, C), ``test_images`` and ``test_labels``."""
    train, test = (
        complete_part(
            images := arrays[f"{part}_images"],
            arrays[f"{part}_labels"],
            classes,
            numbered(part, len(images)),
        )
        for part in ("train", "test")
    )
    return Splits(train=train, test=test)


def single_label_splits(arrays: Mapping[str, Tensor], classes: tuple[str, ...]) -> Splits:
    """From ``train_images``, ``train_targets`` (N,), ``test_images`` and ``test_targets``.

    A target is the number of an image's one class; its labels are 0 but for a single 1.
    """
    each_class = torch.eye(len(classes), dtype=torch.uint8)
    labels = {
        f"{part}_labels": each_class[arrays[f"{part}_targets"].to(torch.int64)]
        for part in ("train", "test")
    }
    return complete_splits({**arrays, **labels}, classes)
