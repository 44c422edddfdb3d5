"""Read a file of CIFAR-10's Python version, a pickle, without unpickling it.

Unpickling can run any code. Here ``pickletools`` only lists the instructions of the file; the list
of classes and the string of pixels are taken from them, and all others are ignored.
"""

from __future__ import annotations

import pickletools
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

PIXELS = 3 * 32 * 32


def read_batch(content: bytes) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """The classes (N,) and the images (N, 3, 32, 32); raise ``ValueError`` for any other file."""
    values = _values(content)
    targets: list[int] = []
    pixels, is_column_major = b"", False
    for value in values:
        if value == "labels":
            targets = _numbers(values)
        elif isinstance(value, bool):  # the memory order, which NumPy writes before the pixels
            is_column_major = value
        elif isinstance(value, str) and len(value) > PIXELS - 1:
            pixels = value.encode("latin-1")
            break
    if not targets or len(pixels) != len(targets) * PIXELS or not set(targets) <= set(range(256)):
        found = f"{len(targets):,} classes and {len(pixels):,} bytes of pixels"
        raise ValueError(f"{found}, which do not match")
    flat = np.frombuffer(pixels, np.uint8)
    shape = (len(targets), PIXELS)
    rows = flat.reshape(shape[::-1]).T if is_column_major else flat.reshape(shape)
    return np.array(targets, np.uint8), np.ascontiguousarray(rows).reshape(-1, 3, 32, 32)


def _values(content: bytes) -> Iterator[object]:
    """Yield the strings, integers and booleans in the order of the file."""
    for instruction, value, _ in pickletools.genops(content):
        if instruction.name in ("NEWTRUE", "NEWFALSE"):
            yield instruction.name == "NEWTRUE"
        elif "STRING" in instruction.name or "INT" in instruction.name:
            yield value


def _numbers(values: Iterator[object]) -> list[int]:
    """The integers up to the next other value; Python 2 wrote the list in chunks of a thousand."""
    found: list[int] = []
    for value in values:
        if not isinstance(value, int):
            break
        found.append(value)
    return found
