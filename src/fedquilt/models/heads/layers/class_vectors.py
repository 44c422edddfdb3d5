"""One vector per class: what it starts as, and whether it stays, travels or is trained."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedquilt.core.errors import UserError, nearest
from fedquilt.core.seeding import generator_for
from fedquilt.models.heads.layers.etf import simplex_etf

STARTS = ("etf", "random")


@dataclass(frozen=True)
class ClassVectors:
    start: str = "etf"  # or random
    trained: bool = False
    etf_seed: int | None = None  # turns the ETF; along the first axes if left out

    def add_to(
        self,
        module: nn.Module,
        name: str,
        shape: tuple[int, int],
        seed: int,
        deviation: float = 1.0,
    ) -> None:
        """Give the module vectors of ``shape`` (C, d): a parameter if trained, else a buffer.

        An ETF that stays is derived wherever a network is built and never sent. Random vectors that
        stay travel with the weights: a network that is read back must not depend on its seed.
        """
        if self.start not in STARTS:
            raise UserError(
                f"vectors of classes cannot start as {self.start!r}{nearest(self.start, STARTS)}"
            )
        vectors = self._first(shape, generator_for(seed, "class vectors", name), deviation)
        if self.trained:
            module.register_parameter(name, nn.Parameter(vectors))
        else:
            module.register_buffer(name, vectors, persistent=self.start == "random")

    def _first(
        self, shape: tuple[int, int], generator: torch.Generator, deviation: float
    ) -> Tensor:
        if self.start == "random":
            return deviation * torch.randn(shape, generator=generator)
        return simplex_etf(shape[1], shape[0], self.etf_seed)
