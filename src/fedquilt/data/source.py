"""Source: where a data set comes from, as a value that a recipe can hold."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

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
