"""Partition: a rule that splits images over clients; Assignment: its result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.core.wording import counted
from fedquilt.data.dataset import LabelView

DROPPED = -1  # stands for the client of an image that no client holds


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """The images of each client, and notes for the allocation's protocol."""

    names: tuple[str, ...]
    indices: tuple[Tensor, ...]  # per client (n,) int64, ascending
    known: tuple[Tensor, ...] | None = None  # per client (n, C) bool; None: no restriction
    notes: Mapping[str, Any] = field(default_factory=dict)  # JSON

    @classmethod
    def from_clients(
        cls, names: Sequence[str], client_of: npt.NDArray[np.int64], notes: Mapping[str, Any]
    ) -> Assignment:
        """From each image's client or ``DROPPED``; the notes count the dropped images."""
        held = np.flatnonzero(client_of != DROPPED)
        order = held[np.argsort(client_of[held], kind="stable")]
        sizes = np.bincount(client_of[held], minlength=len(names))
        per_client = np.split(order, np.cumsum(sizes)[:-1])
        return cls(
            names=tuple(names),
            indices=tuple(torch.tensor(each, dtype=torch.int64) for each in per_client),
            notes={**notes, "dropped_images": len(client_of) - len(held)},
        )


@dataclass(frozen=True, kw_only=True)
class Partition(ABC):
    """Base of partitions; its fields are the settings in a recipe's ``[partition]``."""

    @abstractmethod
    def assign(self, data: LabelView, seed: int) -> Assignment:
        """Assign images to clients; deterministic in the data, the settings and the seed."""


def numbered_clients(count: int) -> tuple[str, ...]:
    """``client-00``, ``client-01`` and so on; names sort by position."""
    width = len(str(count - 1))
    return tuple(f"client-{number:0{width}d}" for number in range(count))


def check_client_count(clients: int, images: int) -> None:
    """Raise a ``UserError`` unless every client can get an image."""
    if not 1 <= clients <= images:
        raise UserError(
            f"{counted(images, 'image')} cannot be split over {counted(clients, 'client')}; "
            "use at least one client and no more clients than images"
        )


def check_positive(**settings: float) -> None:
    """Raise a ``UserError`` if a setting is not positive."""
    for name, value in settings.items():
        if not value > 0:
            raise UserError(f"{name} must be positive, found {value}")
