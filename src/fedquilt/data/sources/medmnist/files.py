"""A MedMNIST file as arrays, read piece by piece."""

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
PARTS = ("train", "val", "test")  # a part's number is its place here
CHUNK_BYTES = 2**24  # of pixels held in memory at a time


def find_file(folder: Path, flag: str, size: int) -> Path:
    return ORIGIN.find(folder, f"{flag}.npz" if size == 28 else f"{flag}_{size}.npz")


def read_file(path: Path, flag: str, size: int) -> Chunks:
    """``images``, ``labels`` as vectors of 0 and 1, and ``parts``: train, val and test in a row."""
    try:
        images = {part: npz_array(path, f"{part}_images") for part in PARTS}
        task = TASKS[flag]
        total = sum(array.shape[0] for array in images.values())
        with progress_bar(f"reading {path.name}", total) as advance:
            for number, part in enumerate(PARTS):
                labels = _labels(path, part, task)
                _check_images(images[part], task, size, len(labels))
                for pixels in _pixels(images[part], task):
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
            f"{images.name} is {images.dtype} of shape {images.shape}, "
            f"but there are {count} labels and the size is {size}"
        )


def _pixels(images: NpzArray, task: Task) -> Iterator[NDArray[np.uint8]]:
    """Channels first; the slices of a volume are its channels."""
    rows_at_a_time = max(1, CHUNK_BYTES // int(np.prod(images.shape[1:])))
    for rows in images.rows(rows_at_a_time):
        if task.is_of_volumes:
            yield rows
        else:
            yield rows[:, None] if rows.ndim == 3 else rows.transpose(0, 3, 1, 2)


def _labels(path: Path, part: str, task: Task) -> NDArray[np.uint8]:
    """(N, C) of 0 and 1."""
    array = npz_array(path, f"{part}_labels")
    given = np.concatenate(list(array.rows(2**20)))
    classes = len(task.classes)
    if task.kind == "multi-label":
        if given.ndim != 2 or given.shape[1] != classes or not np.isin(given, (0, 1)).all():
            raise ValueError(f"{part}_labels should be {classes} columns of 0 and 1")
        return given.astype(np.uint8)
    targets = given.reshape(len(given), -1)
    if targets.shape[1] != 1 or not np.isin(targets, range(classes)).all():
        raise ValueError(f"{part}_labels should be one column of 0 to {classes - 1}")
    return np.eye(classes, dtype=np.uint8)[targets[:, 0].astype(np.int64)]
