"""ClassVectors: one vector per class, an ETF or random, fixed or trained."""

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
    start: str = "etf"  # or "random"
    trained: bool = False
    etf_seed: int | None = None  # rotates the ETF; None: along the first axes

    def add_to(
        self,
        module: nn.Module,
        name: str,
        shape: tuple[int, int],
        seed: int,
        deviation: float = 1.0,
    ) -> None:
        """Register vectors of ``shape`` (C, d): a parameter if trained, else a buffer.

        A fixed ETF is recomputed whenever a network is built, and is never sent. Fixed random
        vectors are stored with the weights, so that a loaded network does not depend on its seed.
        """
        if self.start not in STARTS:
            raise UserError(
                f"class vectors cannot start as {self.start!r}{nearest(self.start, STARTS)}"
            )
        vectors = self._initial(shape, generator_for(seed, "class vectors", name), deviation)
        if self.trained:
            module.register_parameter(name, nn.Parameter(vectors))
        else:
            module.register_buffer(name, vectors, persistent=self.start == "random")

    def _initial(
        self, shape: tuple[int, int], generator: torch.Generator, deviation: float
    ) -> Tensor:
        if self.start == "random":
            return deviation * torch.randn(shape, generator=generator)
        return simplex_etf(shape[1], shape[0], self.etf_seed)
