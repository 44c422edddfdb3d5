"""Source: the settings of a data set and how to load it; Splits: its parts."""

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
    """What a source loads; no patient should be in more than one part.

    ``train`` holds what the clients hold, validation images included: an allocation gives both to
    the same clients. ``is_validation`` marks those that the data set itself sets aside.
    """

    train: MultiLabelDataset
    test: MultiLabelDataset
    is_validation: Tensor | None = None  # (len(train),) bool; None: no image is marked
    missing_images: int = 0  # of a published data set, left out because ``partial`` allows it

    def __post_init__(self) -> None:
        marked = self.is_validation
        if marked is not None and (marked.dtype, *marked.shape) != (torch.bool, len(self.train)):
            raise ValueError(
                f"is_validation must be bool of shape ({len(self.train)},), found {marked.dtype} "
                f"of shape {tuple(marked.shape)}"
            )


@dataclass(frozen=True, kw_only=True)
class Source(ABC):
    """Base of data sources; its fields are the settings in a recipe's ``[data]``."""

    @abstractmethod
    def load(self, cache: Path) -> Splits:
        """Read the data set, decode images into ``cache`` if needed, and split it."""


def complete_dataset(
    images: Tensor, labels: Tensor, classes: tuple[str, ...], ids: tuple[str, ...]
) -> MultiLabelDataset:
    """A data set in which every label is annotated; ``labels`` is (N, C) uint8."""
    known = torch.ones(labels.shape, dtype=torch.bool)
    return MultiLabelDataset(images=images, labels=labels, known=known, classes=classes, ids=ids)


def numbered_ids(name: str, count: int) -> tuple[str, ...]:
    """``name-00000``, ``name-00001`` and so on, for images that are published without names."""
    return tuple(f"{name}-{number:05d}" for number in range(count))


def complete_splits(arrays: Mapping[str, Tensor], classes: tuple[str, ...]) -> Splits:
    """From ``train_images``, ``train_labels`` (N, C), ``test_images`` and ``test_labels``."""
    train, test = (
        complete_dataset(
            images := arrays[f"{split}_images"],
            arrays[f"{split}_labels"],
            classes,
            numbered_ids(split, len(images)),
        )
        for split in ("train", "test")
    )
    return Splits(train=train, test=test)


def single_label_splits(arrays: Mapping[str, Tensor], classes: tuple[str, ...]) -> Splits:
    """From ``train_images``, ``train_targets`` (N,), ``test_images`` and ``test_targets``.

    A target is a class index, which becomes a one-hot label vector.
    """
    one_hot = torch.eye(len(classes), dtype=torch.uint8)
    labels = {
        f"{split}_labels": one_hot[arrays[f"{split}_targets"].to(torch.int64)]
        for split in ("train", "test")
    }
    return complete_splits({**arrays, **labels}, classes)
