"""Read a MedMNIST file in chunks."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedquilt.data.parallel import progress_bar
from fedquilt.data.published.npz_rows import NpzArray, npz_array
from fedquilt.data.published.origin import Origin
from fedquilt.data.published.prepared import Chunks
from fedquilt.data.sources.medmnist.table import TASKS, Task

ORIGIN = Origin("MedMNIST", "the MedMNIST page (medmnist.com) or its record on Zenodo")
SPLITS = ("train", "val", "test")  # the array ``parts`` holds indices into this
CHUNK_BYTES = 2**24  # of pixels held in memory at a time


def find_file(folder: Path, flag: str, size: int) -> Path:
    return ORIGIN.find(folder, f"{flag}.npz" if size == 28 else f"{flag}_{size}.npz")


def read_file(path: Path, flag: str, size: int) -> Chunks:
    """``images``, ``labels`` (N, C) of 0 and 1, and ``parts``, the split of each; train first."""
    try:
        images = {split: npz_array(path, f"{split}_images") for split in SPLITS}
        task = TASKS[flag]
        total = sum(array.shape[0] for array in images.values())
        with progress_bar(f"reading {path.name}", total) as advance:
            for number, split in enumerate(SPLITS):
                labels = _labels(path, split, task)
                _check_images(images[split], task, size, len(labels))
                for pixels in _pixels(images[split], task):
                    yield "images", pixels
                    advance(len(pixels))
                yield "labels", labels
                yield "parts", np.full(len(labels), number, np.uint8)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        expected = "train, val and test images and labels of " + flag
        raise ORIGIN.wrong(path, f"cannot be used ({error})", expected) from error


def _check_images(images: NpzArray, task: Task, size: int, count: int) -> None:
    plane = (count, size, size)
    expected = [(*plane, size)] if task.is_of_volumes else [plane, (*plane, 3)]
    if images.dtype != np.uint8 or images.shape not in expected:
        raise ValueError(
            f"{images.name} is {images.dtype} of shape {images.shape}; expected uint8, one image "
            f"for each of {count} labels, of size {size}"
        )


def _pixels(images: NpzArray, task: Task) -> Iterator[NDArray[np.uint8]]:
    """Yield images with channels first; the slices of a volume are its channels."""
    rows_at_a_time = max(1, CHUNK_BYTES // int(np.prod(images.shape[1:])))
    for rows in images.rows(rows_at_a_time):
        if task.is_of_volumes:
            yield rows
        else:
            yield rows[:, None] if rows.ndim == 3 else rows.transpose(0, 3, 1, 2)


def _labels(path: Path, split: str, task: Task) -> NDArray[np.uint8]:
    """(N, C) of 0 and 1; a class index becomes a one-hot vector."""
    array = npz_array(path, f"{split}_labels")
    given = np.concatenate(list(array.rows(2**20)))
    classes = len(task.classes)
    if task.kind == "multi-label":
        if given.ndim != 2 or given.shape[1] != classes or not np.isin(given, (0, 1)).all():
            raise ValueError(f"{split}_labels should be {classes} columns of 0 and 1")
        return given.astype(np.uint8)
    targets = given.reshape(len(given), -1)
    if targets.shape[1] != 1 or not np.isin(targets, range(classes)).all():
        raise ValueError(f"{split}_labels should be one column of 0 to {classes - 1}")
    return np.eye(classes, dtype=np.uint8)[targets[:, 0].astype(np.int64)]
