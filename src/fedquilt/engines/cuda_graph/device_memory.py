"""Device memory: clients' data, trees in fixed buffers, advice when the device is out of memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.core.flat_tree import Signature, flat_copy
from fedquilt.core.tree import Tree, Weights, map_together, signature, write_all
from fedquilt.data.client_data import ClientData

IMAGES_PER_COPY = 4096
MESSAGE_SENTENCES = 3  # of torch's message: what happened, what was requested, what the device has
LEAST = 2  # tensors of a branch that is kept flat


class FixedTree(NamedTuple):
    """Buffers at fixed addresses, and the signature of the values that fit into them."""

    tree: Any  # a Tree; callers know its structure
    signature: Signature


def on_device(
    clients: Mapping[str, ClientData], device: torch.device, *, channels_last: bool = False
) -> dict[str, ClientData]:
    """Return the clients' data on the device; images shared by several clients are copied once."""
    images = {data.images.data_ptr(): data.images for data in clients.values()}
    layout = torch.channels_last if channels_last else torch.contiguous_format
    copies = {address: copy_images(pixels, device, layout) for address, pixels in images.items()}
    return {
        name: replace(
            data.to(device),
            images=copies[data.images.data_ptr()],
            indices=data.indices.to(device),
        )
        for name, data in clients.items()
    }


def copy_images(images: Tensor, device: torch.device, layout: torch.memory_format) -> Tensor:
    """Copy bytes into the memory format the network reads; converting floats later is slower.

    Copied in pieces: there may be no room for all images in both formats.
    """
    target = torch.empty(images.shape, dtype=images.dtype, device=device, memory_format=layout)
    for there, here in zip(target.split(IMAGES_PER_COPY), images.split(IMAGES_PER_COPY)):
        there.copy_(here.to(device))
    return target


class Buffers:
    """Trees at fixed addresses, as replaying a CUDA graph requires."""

    def __init__(self, *, channels_last: bool) -> None:
        self._channels_last = channels_last
        self._trees: dict[tuple[str, Signature], Tree] = {}

    def load(self, role: str, tree: Tree) -> FixedTree:
        """Copy a tree into the buffers for its role and signature."""
        key = (role, signature(tree))
        if key in self._trees:
            fill(self._trees[key], tree)
        else:
            self._trees[key] = fixed_copy(tree, channels_last=self._channels_last)
        return FixedTree(self._trees[key], key[1])

    def clear(self) -> None:
        self._trees.clear()


def fixed_copy(tree: Tree, *, channels_last: bool) -> Tree:
    """Copy a tree into new buffers; each branch of tensors becomes a FlatTree."""
    if isinstance(tree, Tensor):
        format_ = torch.channels_last if channels_last and tree.ndim == 4 else None
        return tree.detach().clone(memory_format=format_ or torch.preserve_format)
    found = [branch.device for branch in tree.values() if isinstance(branch, Tensor)]
    if LEAST <= len(found) == len(tree) and len(set(found)) == 1:
        return flat_copy(cast("Weights", tree), channels_last=channels_last)
    return {name: fixed_copy(tree[name], channels_last=channels_last) for name in tree}


def fill(buffers: Tree, values: Tree) -> None:
    """Write values into their buffers; a value that is its own buffer is skipped."""

    def write(places: list[Tensor], found: list[Tensor]) -> list[Tensor]:
        memory = {_memory(place) for place in places}
        pairs = [
            # A value in another path's buffer must be read before that buffer is written.
            (place, value.detach().clone() if _memory(value) in memory else value.detach())
            for place, value in zip(places, found)
            if value is not place and value.numel()
        ]
        write_all([place for place, _ in pairs], [value for _, value in pairs])
        return places

    map_together(write, buffers, values)


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


@contextmanager
def out_of_memory_advice(advice: str) -> Iterator[None]:
    """Turn CUDA out-of-memory errors into a UserError with advice."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        found = ". ".join(str(error).split(". ")[:MESSAGE_SENTENCES])
        raise UserError(f"the device is out of memory ({found}); {advice}") from error


def training_advice(slots: int) -> str:
    """Return what to do if training runs out of memory."""
    fewer = f"fewer clients at a time (--slots {slots // 2}), " if slots > 1 else ""
    return (
        f"use {fewer}smaller batches (method.training.batch_size) or smaller images; "
        "--resume continues from the last saved round"
    )
