"""LabelTable: labels without images, for tests of what looks at labels only."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class LabelTable:
    """The least that partitions and annotations need: a ``fedquilt.data.labelled.Labelled``."""

    labels: Tensor  # (N, C) uint8, meaningful only where known
    known: Tensor  # (N, C) bool
    classes: tuple[str, ...]
    groups: tuple[str, ...] | None = None
    sites: tuple[str, ...] | None = None
