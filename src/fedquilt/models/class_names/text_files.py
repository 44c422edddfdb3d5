"""Files of text vectors, safetensors or npz: one vector per name."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from fedquilt.core.atomic_files import write_bytes
from fedquilt.core.errors import UserError, nearest

FILES = (".safetensors", ".npz")


def read_text_vectors(path: Path, names: Sequence[str]) -> Tensor:
    """Read the vectors of these names, in this order; the file may hold others."""
    stored = _read(path)
    for name in names:
        if name not in stored:
            raise UserError(
                f"{path} has no vector for {name!r}{nearest(name, stored)}; it needs one for each "
                f"of: {', '.join(names)}"
            )
    vectors = [stored[name].reshape(-1).float() for name in names]
    widths = {len(vector) for vector in vectors}
    if len(widths) > 1:
        raise UserError(f"{path} holds vectors of different lengths: {sorted(widths)}")
    for name, vector in zip(names, vectors):
        if not bool(vector.isfinite().all()) or not bool(vector.any()):
            raise UserError(f"{path}: the vector of {name!r} is zero or not finite")
    return torch.stack(vectors)


def write_text_vectors(path: Path, vectors: Mapping[str, Tensor]) -> None:
    if path.suffix != ".safetensors":
        raise UserError(f"text vectors can only be written to a .safetensors file, found {path}")
    write_bytes(path, save({name: vector.clone() for name, vector in vectors.items()}))


def _read(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise UserError(
            f"no file of text vectors at {path}; to make one, see docs/guides/text_embeddings.md"
        )
    try:
        if path.suffix == ".npz":
            # Open the file here: numpy does not close a damaged archive.
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                return {name: torch.from_numpy(arrays[name]) for name in arrays.files}
        stored: dict[str, Tensor] = load_file(path)
    except (SafetensorError, ValueError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} is not a readable {path.suffix} file: {error}") from error
    return stored
