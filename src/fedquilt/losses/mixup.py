"""MixUp of two batches: images and what is believed of them, by one share."""

from __future__ import annotations

import torch
from torch import Tensor

from fedquilt.losses.belief import Belief


def beta_share(concentration: float, generator: torch.Generator) -> Tensor:
    """One draw from Beta(concentration, concentration), as the quotient of two gamma draws."""
    shape = torch.full((2,), concentration, dtype=torch.float64)  # in float32, 0 / 0 could come up
    draws = torch._standard_gamma(shape, generator=generator)
    return (draws[0] / draws.sum()).to(torch.float32)


def mixed(first: Tensor, second: Tensor, share: Tensor) -> Tensor:
    return share * first + (1 - share) * second


def mixed_belief(first: Belief, second: Belief, share: Tensor) -> Belief:
    """MixUp of two images' labels; valid only where both are."""
    return Belief(
        mixed(first.targets, second.targets, share),
        first.valid & second.valid,
        first.is_pseudo | second.is_pseudo,
    )
