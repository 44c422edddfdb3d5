"""Device memory: clients' data, trees in fixed buffers, advice when the device is out of memory."""

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

IMAGES_PER_COPY = 4096
MESSAGE_SENTENCES = 3  # of torch's message: what happened, what was requested, what the device has

Signature: TypeAlias = tuple[tuple[str, torch.Size, torch.dtype], ...]


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


def signature(tree: Tree) -> Signature:
    """Return names, shapes and dtypes; trees with equal signatures can share buffers."""
    return tuple((path, leaf.shape, leaf.dtype) for path, leaf in leaves(tree))


def fixed_copy(tree: Tree, *, channels_last: bool) -> Tree:
    """Copy a tree into new buffers."""

    def new_buffer(leaf: Tensor) -> Tensor:
        format_ = torch.channels_last if channels_last and leaf.ndim == 4 else None
        return leaf.detach().clone(memory_format=format_ or torch.preserve_format)

    copied: Tree = tree_map(new_buffer, tree)
    return copied


def fill(buffers: Tree, values: Tree) -> None:
    """Write values into their buffers; a value that is its own buffer is skipped."""
    targets, sources = [], []
    found, fixed = flatten(values), flatten(buffers)
    buffer_ids = {id(buffer) for buffer in fixed.values()}
    for path, buffer in fixed.items():
        value = found[path]
        if value is not buffer and value.numel():
            targets.append(buffer)
            # A value that is another path's buffer must be read before that buffer is written.
            sources.append(value.detach().clone() if id(value) in buffer_ids else value.detach())
    write_all(targets, sources)


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
