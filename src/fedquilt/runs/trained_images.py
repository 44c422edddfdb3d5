"""The images a run was trained on, by the hash of their pixels, so that no test repeats them.

The file ``trained_images.npz`` of a run folder: 8 bytes an image, keyed by random bytes of this
run, so that two folders cannot be compared with each other. Exported models do not hold it. An
image is found again if the same file is decoded in the same way; a copy in another format or
size has other pixels and is not found.
"""

from __future__ import annotations

import hashlib
import io
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedquilt.core.atomic_files import write_bytes
from fedquilt.core.errors import UserError
from fedquilt.core.parsed_text import UNREADABLE
from fedquilt.data.allocation import Holding

FILE = "trained_images.npz"
KEY_BYTES, HASH_BYTES = 16, 8


@dataclass(frozen=True, eq=False)
class TrainedImages:
    """The hashes of all images that a run's clients hold, for training or for validation."""

    key: bytes
    hashes: NDArray[np.uint64]  # sorted

    def are_among(self, images: Tensor) -> Tensor:
        """(N,) bool: whether an image has the pixels of a trained one."""
        return torch.from_numpy(np.isin(hashes_of(images, self.key), self.hashes))


def hashes_of(images: Tensor, key: bytes) -> NDArray[np.uint64]:
    """Return (N,) keyed hashes of shape and pixels of uint8 images (N, channels, height, width)."""
    shape = repr(tuple(images.shape[1:])).encode()

    def digest(image: Tensor) -> bytes:
        pixels = image.contiguous().numpy().tobytes()
        return hashlib.blake2b(shape + pixels, digest_size=HASH_BYTES, key=key).digest()

    found = np.frombuffer(b"".join(map(digest, images)), dtype="<u8")
    return found.astype(np.uint64)


def write_trained_images(run: Path, images: Tensor, holdings: Sequence[Holding]) -> None:
    """Write the hashes of the images that clients hold; a resumed run keeps its file."""
    path = run / FILE
    if path.exists():
        return
    key = secrets.token_bytes(KEY_BYTES)
    held = torch.cat([holding.indices for holding in holdings]).unique()
    parts = [hashes_of(images[rows], key) for rows in held.split(256)]
    content = io.BytesIO()
    np.savez(
        content,
        key=np.frombuffer(key, dtype=np.uint8),
        hashes=np.unique(np.concatenate(parts)),
    )
    write_bytes(path, content.getvalue())


def read_trained_images(run: Path) -> TrainedImages | None:
    """Return the hashes; None for a run without them, as of a study or of an older version."""
    path = run / FILE
    if not path.exists():
        return None
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            return TrainedImages(file["key"].tobytes(), file["hashes"].astype(np.uint64))
    except UNREADABLE as error:
        raise UserError(
            f"{path} cannot be read ({error}), so it is not known which images the model was "
            f"trained on; write it again: fedquilt run --out {run} --resume"
        ) from error
