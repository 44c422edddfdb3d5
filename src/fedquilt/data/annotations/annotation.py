"""Annotation: a rule that says which classes each client annotates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Annotation(ABC):
    """Settings are fields; the mask hides labels and never makes an un-annotated one known."""

    needs_complete_data: ClassVar[bool] = False  # the rule is untrue of data with blank cells

    @abstractmethod
    def mask(self, clients: tuple[str, ...], classes: tuple[str, ...], seed: int) -> Tensor:
        """(K, C) bool, from the clients' and the classes' names."""
