"""A view's random numbers, and samples sorted by what was drawn for them."""

from __future__ import annotations

import torch
from torch import Tensor

from fedquilt.core.seeding import generator_for

OFFSET_STEP = 4  # a device's generator counts its numbers in fours


def uniform(pixels: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """So many numbers from 0 to 1 for each sample, (B, count), where the pixels are."""
    draws = torch.rand((len(pixels), count), generator=generator, device=generator.device)
    return draws.to(pixels.device)


def uniform_on_host(pixels: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Likewise, on the host: what is drawn decides how much there is to do.

    To read numbers of the device would mean to wait for all the work it has been given before.
    So a device's generator only tells how far it is, and moves on; that names the numbers.
    """
    if generator.device.type != "cpu":
        place = generator.get_offset()
        generator.set_offset(place + OFFSET_STEP)
        generator = generator_for(generator.initial_seed(), place)
    return torch.rand((len(pixels), count), generator=generator)


def sent(numbers: Tensor, device: torch.device) -> Tensor:
    """Numbers on ``device``; a GPU that gets them from the host is not waited for."""
    if device.type == "cpu" or numbers.device.type != "cpu":
        return numbers.to(device)
    return numbers.pin_memory().to(device, non_blocking=True)


def rows_by_kind(kind: Tensor, device: torch.device) -> dict[int, Tensor]:
    """For every kind that occurs the rows that have it, on ``device``; ``kind`` is on the host."""
    kinds, counts = kind.to(torch.int64).unique(return_counts=True)
    rows = sent(kind.argsort(stable=True), device).split(counts.tolist())
    return dict(zip(kinds.tolist(), rows))
