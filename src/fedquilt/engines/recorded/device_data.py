"""Clients' data on a device: all images as bytes, in the layout that the network reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from fedquilt.data.client_data import ClientData

PIECE = 4096  # images


def on_device(
    clients: Mapping[str, ClientData], device: torch.device, *, channels_last: bool = False
) -> dict[str, ClientData]:
    """The clients' data on the device; images that several clients share are copied once."""
    images = {data.images.data_ptr(): data.images for data in clients.values()}
    layout = torch.channels_last if channels_last else torch.contiguous_format
    copies = {place: copied(pixels, device, layout) for place, pixels in images.items()}
    return {
        name: replace(
            data.to(device),
            images=copies[data.images.data_ptr()],
            indices=data.indices.to(device),
        )
        for name, data in clients.items()
    }


def copied(images: Tensor, device: torch.device, layout: torch.memory_format) -> Tensor:
    """Bytes laid out as the network will read them: to turn them later, as floats, takes longer.

    In pieces: there may be no room for all of them in both layouts.
    """
    place = torch.empty(images.shape, dtype=images.dtype, device=device, memory_format=layout)
    for there, here in zip(place.split(PIECE), images.split(PIECE)):
        there.copy_(here.to(device))
    return place
