"""Partition: a rule that spreads images over clients; Assignment: what it hands back."""

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
from fedquilt.data.dataset import LabelView

DROPPED = -1  # the client of an image that nobody holds


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """Who holds which images, and what a reader of the allocation should be told about it."""

    names: tuple[str, ...]
    indices: tuple[Tensor, ...]  # per client (n,) int64, ascending
    known: tuple[Tensor, ...] | None = None  # per client (n, C) bool: labels it may have annotated
    notes: Mapping[str, Any] = field(default_factory=dict)  # JSON

    @classmethod
    def from_clients(
        cls, names: Sequence[str], client_of: npt.NDArray[np.int64], notes: Mapping[str, Any]
    ) -> Assignment:
        """From each image's client, or ``DROPPED``; the dropped images are counted in the notes."""
        held = np.flatnonzero(client_of != DROPPED)
        order = held[np.argsort(client_of[held], kind="stable")]
        sizes = np.bincount(client_of[held], minlength=len(names))
        parts = np.split(order, np.cumsum(sizes)[:-1])
        return cls(
            names=tuple(names),
            indices=tuple(torch.tensor(part, dtype=torch.int64) for part in parts),
            notes={**notes, "dropped_images": len(client_of) - len(held)},
        )


@dataclass(frozen=True, kw_only=True)
class Partition(ABC):
    """Settings are fields; the same data, settings and seed always give the same assignment."""

    @abstractmethod
    def assign(self, data: LabelView, seed: int) -> Assignment: ...


def numbered_clients(count: int) -> tuple[str, ...]:
    """``client-00``, ``client-01`` and so on: names that sort by position."""
    width = len(str(count - 1))
    return tuple(f"client-{number:0{width}d}" for number in range(count))


def refuse_impossible_count(clients: int, images: int) -> None:
    if not 1 <= clients <= images:
        raise UserError(
            f"{images} images cannot be spread over {clients} clients; "
            "use at least one client and no more clients than images"
        )


def refuse_non_positive(**settings: float) -> None:
    for name, value in settings.items():
        if not value > 0:
            raise UserError(f"{name} must be positive, found {value}")
