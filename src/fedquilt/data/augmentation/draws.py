"""Random numbers of a view, and grouping of samples by the kind drawn for them."""

from __future__ import annotations

import torch
from torch import Tensor

from fedquilt.core.seeding import generator_for

OFFSET_STEP = 4  # the offset of a CUDA generator must be a multiple of 4


def uniform(pixels: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """(B, count) uniform numbers in 0..1, on the device of ``pixels``."""
    draws = torch.rand((len(pixels), count), generator=generator, device=generator.device)
    return draws.to(pixels.device)


def uniform_on_host(pixels: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """(B, count) uniform numbers in 0..1 on the host, for draws that decide which kernels run.

    Reading numbers from a GPU would synchronise it. A CUDA generator therefore only gives its
    seed and offset, which seed a CPU generator, and advances its offset.
    """
    if generator.device.type != "cpu":
        offset = generator.get_offset()
        generator.set_offset(offset + OFFSET_STEP)
        generator = generator_for(generator.initial_seed(), offset)
    return torch.rand((len(pixels), count), generator=generator)


def to_device(numbers: Tensor, device: torch.device) -> Tensor:
    """Move a tensor to ``device``; a copy from the host to a GPU does not block."""
    if device.type == "cpu" or numbers.device.type != "cpu":
        return numbers.to(device)
    return numbers.pin_memory().to(device, non_blocking=True)


def rows_by_kind(kind: Tensor, device: torch.device) -> dict[int, Tensor]:
    """The samples of each kind that occurs, as indices on ``device``; ``kind`` is on the host."""
    kinds, counts = kind.to(torch.int64).unique(return_counts=True)
    rows = to_device(kind.argsort(stable=True), device).split(counts.tolist())
    return dict(zip(kinds.tolist(), rows))
