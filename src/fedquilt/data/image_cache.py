"""Decoded images in one file, memory-mapped: a set larger than the memory costs none of it.

The file's name is a hash of the images' names, sizes and times and of how they are decoded, so
a changed image or setting makes a new file. While it is written it is called ``.part``; only a
complete file gets its name, and an interrupted decode goes on where it stopped. Runs open the
complete file for reading only and share it.

Threads decode, because Pillow lets go of the interpreter lock. Measured on 2 cores, images/s, one
thread / two threads / two processes: small JPEGs 1102 / 1861 / 1489; 1024 px JPEGs, drafted, 273 /
503 / 397; 1024 px PNGs 76 / 150 / 134.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from fedquilt.data.bad_image import BadImage
from fedquilt.data.image_files import Decoded, Decoding, decode_image
from fedquilt.data.parallel import in_parallel
from fedquilt.data.problems import Problems
from fedquilt.errors import UserError

LAYOUT_VERSION = 1  # to be raised when decoding changes, so that older files are not used
CHUNK = 256  # images in flight, and how often a partly written file is made safe


@dataclass(frozen=True)
class ImageFile:
    name: str  # relative to the image folder
    path: Path  # where it was found
    line: int  # of the label file


def decode_in_order(
    files: Sequence[ImageFile], decoding: Decoding, title: str
) -> Iterator[tuple[ImageFile, Decoded | BadImage]]:
    """Decode in parallel, a chunk at a time, with a progress bar where a person watches."""

    def attempt(file: ImageFile) -> Decoded | BadImage:
        try:
            return decode_image(file.path, decoding)
        except BadImage as problem:
            return problem

    # Results first: zip ends with its first argument, and the bar must see its own end.
    for result, file in zip(in_parallel(attempt, files, title, in_flight=CHUNK), files):
        yield file, result


def cached_images(files: Sequence[ImageFile], decoding: Decoding, cache: Path) -> Tensor:
    """The images (N, channels, size, size) in the order of ``files``, decoded if need be.

    Raises one ``UserError`` that lists every bad image by its line in the label file.
    """
    row_bytes = decoding.channels * decoding.size**2
    byte_count = len(files) * row_bytes
    path = cache / f"images-{_key(files, decoding)}.u8"
    if not _is_complete(path, byte_count):
        cache.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        with only_one(path.with_suffix(".lock")):
            if not _is_complete(path, byte_count):  # another run may have made it meanwhile
                _check_space(part, byte_count)
                _decode_into(part, files, decoding, row_bytes)
                part.replace(path)
    return open_mapped(path).view(-1, decoding.channels, decoding.size, decoding.size)


def open_mapped(path: Path) -> Tensor:
    """The file's bytes as a tensor that is read on use; writing to it changes no file.

    A private mapping without reserved memory: the plain copy-on-write mapping of numpy or torch is
    refused by Linux when the file is larger than the memory.
    """
    with path.open("rb") as file:
        if sys.platform == "win32":
            return torch.frombuffer(
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY), dtype=torch.uint8
            )
        unreserved = 0x4000 if sys.platform == "linux" else 0  # MAP_NORESERVE, absent before 3.12
        mapped = mmap.mmap(
            file.fileno(),
            0,
            flags=mmap.MAP_PRIVATE | unreserved,
            prot=mmap.PROT_READ | mmap.PROT_WRITE,
        )
    return torch.frombuffer(mapped, dtype=torch.uint8)


def _decode_into(
    part: Path, files: Sequence[ImageFile], decoding: Decoding, row_bytes: int
) -> None:
    """Write the rows that ``part`` lacks. A bad image ends the writing, not the looking."""
    problems = Problems()
    with part.open("r+b" if part.exists() else "w+b") as out:
        done = min(out.seek(0, os.SEEK_END) // row_bytes, len(files))
        out.seek(done * row_bytes)
        results = decode_in_order(files[done:], decoding, "decoding images")
        for count, (file, result) in enumerate(results, start=1):
            if isinstance(result, BadImage):
                add_bad_image(file, result, problems)
            elif not problems:
                out.write(result.pixels.data)
            if count % CHUNK == 0:
                _make_safe(out)
        _make_safe(out)
    if problems:
        part.unlink()
        raise problems.error("the images")


def add_bad_image(file: ImageFile, bad: BadImage, problems: Problems) -> None:
    problems.add(bad.kind, f"line {file.line}: {bad.detail}", private=repr(file.name))


def _make_safe(out: BinaryIO) -> None:
    out.flush()
    os.fsync(out.fileno())


def _is_complete(path: Path, byte_count: int) -> bool:
    return path.is_file() and path.stat().st_size == byte_count


def _check_space(part: Path, byte_count: int) -> None:
    have = part.stat().st_size if part.exists() else 0
    free = shutil.disk_usage(part.parent).free
    if byte_count - have > free:
        raise UserError(
            f"the decoded images need {byte_count / 1e9:.1f} GB in the cache folder {part.parent}, "
            f"{free / 1e9:.1f} GB are free; choose another cache folder or a smaller size"
        )


def _key(files: Sequence[ImageFile], decoding: Decoding) -> str:
    digest = hashlib.blake2b(digest_size=12)
    digest.update(json.dumps([LAYOUT_VERSION, asdict(decoding)]).encode())
    for file in files:
        status = file.path.stat()
        entry = [file.name, status.st_size, status.st_mtime_ns]
        digest.update(json.dumps(entry).encode() + b"\n")
    return digest.hexdigest()


@contextmanager
def only_one(lock: Path) -> Iterator[None]:
    """Let one run decode while others wait; the system frees the lock of a run that died."""
    if sys.platform == "win32":  # no such lock there: two runs write the same bytes twice
        yield
        return
    import fcntl

    with lock.open("w") as file:
        with suppress(OSError):  # a file system without locks: as above
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
