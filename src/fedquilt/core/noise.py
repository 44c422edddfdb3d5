"""Gaussian noise on a grid, and where its randomness comes from."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor

from fedquilt.core.seeding import generator_for

GRID_BITS = 20  # a step of the grid is at most 2^-20 of the standard deviation
SPARE = 2.0**61  # no integer is larger: one bit is left for the sum of two
ROUNDING = 1e-5  # relative; float32 sums may exceed the bound they were clipped to by less


class NoiseSource(Protocol):
    def gaussian(self, count: int) -> Tensor:
        """Standard normal numbers, (count,) float64."""
        ...

    def uniform(self, count: int) -> Tensor:
        """Numbers in [0, 1), (count,) float64."""
        ...


# The names are those of a seed, such as a run, client and round; secret noise ignores them.
Draws: TypeAlias = Callable[..., NoiseSource]


class SeededNoise:
    """For simulations only: whoever knows the recipe can subtract it."""

    def __init__(self, *names: int | str) -> None:
        self._generator = generator_for(*names)

    def gaussian(self, count: int) -> Tensor:
        return torch.randn(count, generator=self._generator, dtype=torch.float64)

    def uniform(self, count: int) -> Tensor:
        return torch.rand(count, generator=self._generator, dtype=torch.float64)


class SystemNoise:
    """For deployments: from the operating system's entropy, never from a recipe's seed."""

    def __init__(self, *names: int | str) -> None:
        pass

    def gaussian(self, count: int) -> Tensor:
        """Box-Muller; with 53 bits the largest is 8.6, beyond which lies less than 1e-16."""
        pairs = -(-count // 2)
        radius = np.sqrt(-2 * np.log(1 - self._uniform(pairs)))
        angle = 2 * math.pi * self._uniform(pairs)
        both = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])
        return torch.from_numpy(both[:count])

    def uniform(self, count: int) -> Tensor:
        return torch.from_numpy(self._uniform(count))

    def _uniform(self, count: int) -> np.ndarray:
        words = np.frombuffer(os.urandom(8 * count), dtype=np.uint64)
        numbers: np.ndarray = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
        return numbers


def with_noise(
    values: Tensor, sensitivity: float, multiplier: float, source: NoiseSource
) -> Tensor:
    """Add noise of ``multiplier`` times the sensitivity to values (d,), on a grid; float64.

    Values and noise are rounded to integers before they are added. The low bits of a sum of floats
    would tell which noise was added. What rounding adds to the sensitivity counts as sensitivity.
    """
    bits = GRID_BITS - math.frexp(multiplier * sensitivity)[1] + 1
    rounded = math.sqrt(values.numel()) * 2.0**-bits
    deviation = multiplier * (sensitivity * (1 + ROUNDING) + rounded)
    scale, limit = 2.0**bits, SPARE
    exact = (values.to(torch.float64) * scale).clamp(-limit, limit).round_().to(torch.int64)
    drawn = source.gaussian(values.numel()).reshape(values.shape) * (deviation * scale)
    integers = exact + drawn.round_().to(torch.int64).to(exact.device)
    return integers.to(torch.float64) / scale
