"""Every client annotates every class: the upper bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedquilt.data.annotations.annotation import Annotation


@dataclass(frozen=True, kw_only=True)
class Full(Annotation):
    """Needs data in which every label is annotated; for others see ``recorded``."""

    needs_complete_data: ClassVar[bool] = True

    def mask(self, clients: tuple[str, ...], classes: tuple[str, ...], seed: int) -> Tensor:
        return torch.ones(len(clients), len(classes), dtype=torch.bool)
