"""Device memory: clients' data, trees at fixed addresses, out-of-memory advice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.core.tree import Tree, flatten, leaves, tree_map, write_all
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


Signature: TypeAlias = tuple[tuple[str, torch.Size, torch.dtype], ...]


def signature(tree: Tree) -> Signature:
    """Names, shapes and dtypes: what must be equal for numbers to go into the same places."""
    return tuple((path, leaf.shape, leaf.dtype) for path, leaf in leaves(tree))


class FixedTree(NamedTuple):
    """Places, and what fits into them."""

    tree: Any  # as a caller knows its shape
    signature: Signature


def fixed_copy(tree: Tree, *, channels_last: bool) -> Tree:
    """A tree of the same numbers in memory of its own."""

    def own(leaf: Tensor) -> Tensor:
        format_ = torch.channels_last if channels_last and leaf.ndim == 4 else None
        return leaf.detach().clone(memory_format=format_ or torch.preserve_format)

    copied: Tree = tree_map(own, tree)
    return copied


def fill(places: Tree, values: Tree) -> None:
    """Write values into their places; a value that is in its place already costs nothing."""
    targets, sources = [], []
    found, fixed = flatten(values), flatten(places)
    taken = {id(place) for place in fixed.values()}
    for path, place in fixed.items():
        value = found[path]
        if value is not place and value.numel():
            targets.append(place)
            # A value that lies in another place must be read before that place is written.
            sources.append(value.detach().clone() if id(value) in taken else value.detach())
    write_all(targets, sources)


SENTENCES = 3  # of torch's message: what happened, what was wanted, what the device has


@contextmanager
def advice_if_full(advice: str) -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError as error:
        found = ". ".join(str(error).split(". ")[:SENTENCES])
        raise UserError(f"the device's memory is full ({found}); {advice}") from error


def fewer_at_a_time(slots: int) -> str:
    """The advice to a run that trains."""
    fewer = f"fewer clients at a time (--slots {slots // 2}), " if slots > 1 else ""
    return (
        f"take {fewer}smaller batches (method.training.batch_size) or smaller images; "
        "--resume goes on from the last saved round"
    )
