"""ObjectStore: trees of tensors on disk, named by their hash, so that damage is detected."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from fedquilt.core.atomic_files import wait_for_disk, write_bytes
from fedquilt.core.tree import Tree, flatten, unflatten

EMPTY = "empty"  # the key of a tree without tensors, which has no file


class DamagedObject(ValueError):
    """Raised for a stored tree that is missing, truncated or altered."""


class ObjectStore:
    """A folder of safetensors files; unlike pickles, they cannot run code when read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._intact: set[str] = set()  # keys whose files this process has written or read
        self._durable: set[str] = set()  # keys whose files are known to survive a power failure
        folder.mkdir(parents=True, exist_ok=True)

    def put(self, tree: Tree) -> str:
        """Store a tree and return its key; equal trees have equal keys."""
        content = packed(tree)
        if not content:
            return EMPTY
        key = hashlib.sha256(content).hexdigest()
        path = self._path(key)
        if key not in self._intact or not path.exists():  # an older file may be damaged
            write_bytes(path, content, durable=False)
            self._intact.add(key)
            self._durable.discard(key)
        return key

    def get(self, key: str) -> Any:
        return unpacked(b"" if key == EMPTY else self.read(key), self._path(key).name)

    def read(self, key: str) -> bytes:
        """Return the content of a stored tree's file."""
        try:
            content = self._path(key).read_bytes()
        except OSError as error:
            raise DamagedObject(f"{self._path(key).name} cannot be read: {error}") from error
        if hashlib.sha256(content).hexdigest() != key:
            raise DamagedObject(f"{self._path(key).name} was cut short or altered")
        self._intact.add(key)
        return content

    def make_durable(self, keys: set[str]) -> None:
        """Wait until these objects are on disk, where they survive a power failure.

        Those that are there already are not waited for again: of a large population, few states
        change between two saves.
        """
        for key in keys - {EMPTY} - self._durable:
            wait_for_disk(self._path(key))
        self._durable = set(keys)  # others may be deleted
        wait_for_disk(self._folder)

    def keep_only(self, keys: set[str]) -> None:
        for path in self._folder.iterdir():
            if path.stem not in keys:
                path.unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.safetensors"


def packed(tree: Tree) -> bytes:
    """Return a tree as safetensors; no bytes for a tree without tensors."""
    flat = {name: tensor.detach().cpu().contiguous() for name, tensor in flatten(tree).items()}
    return save(_without_shared_memory(flat)) if flat else b""


def unpacked(content: bytes, file: str) -> Any:
    """Return the tree that :func:`packed` wrote; ``file`` names where it was read."""
    if not content:
        return {}
    try:
        return unflatten(load(content))
    except SafetensorError as error:
        raise DamagedObject(f"{file} is not safetensors: {error}") from error


def _without_shared_memory(flat: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copy tensors that share memory, which states may do and safetensors does not accept."""
    seen: set[int] = set()
    result = {}
    for name, tensor in flat.items():
        storage = tensor.untyped_storage().data_ptr()
        result[name] = tensor.clone() if storage in seen else tensor
        seen.add(storage)
    return result
