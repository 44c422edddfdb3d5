"""Decoded images in one memory-mapped file, so that large sets need little memory."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import mmap
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, TypeAlias, TypeVar

import torch
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.data.images.bad_image import BadImage
from fedquilt.data.images.bit_depth import Pixels
from fedquilt.data.images.decoding import Decoding, decode_image
from fedquilt.data.parallel import in_parallel
from fedquilt.data.problems import Problems


@contextmanager
def cache_lock(lock: Path) -> Iterator[None]:
    """Let one run write beside ``lock`` while others wait; what the disk refuses is told in words.

    The system frees the lock of a run that died.
    """
    cache = lock.parent
    try:
        cache.mkdir(parents=True, exist_ok=True)
        file = lock.open("w")
    except OSError as error:
        raise UserError(
            f"the cache folder {cache} cannot be written to ({error.strerror or error}); choose "
            "another (prepare takes it by --to, runs by --cache), or make it writable"
        ) from error
    with file:
        _wait_for(file)
        try:
            yield
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise UserError(
                f"the disk of the cache folder {cache} is full; make room or choose another"
            ) from error


def _wait_for(file: IO[str]) -> None:
    if sys.platform == "win32":  # no such lock there: two runs write the same bytes twice
        return
    import fcntl

    with suppress(OSError):  # a file system without locks: as above
        fcntl.flock(file, fcntl.LOCK_EX)


LAYOUT_VERSION = 1  # to be raised when decoding changes, so that older files are not used
CHUNK = 256  # images in flight, and how often a partly written file is made safe


@dataclass(frozen=True)
class ImageFile:
    name: str  # relative to the image folder
    path: Path  # where it was found
    line: int  # of the label file


Result = TypeVar("Result")
BadFiles: TypeAlias = list[tuple[ImageFile, BadImage]]


def decode_in_order(
    files: Sequence[ImageFile], decode: Callable[[Path], Result], title: str
) -> Iterator[tuple[ImageFile, Result | BadImage]]:
    """Decode in parallel, a chunk at a time, with a progress bar where a person watches."""

    def attempt(file: ImageFile) -> Result | BadImage:
        try:
            return decode(file.path)
        except BadImage as problem:
            return problem

    # Results first: zip ends with its first argument, and the bar must see its own end.
    for result, file in zip(in_parallel(attempt, files, title, in_flight=CHUNK), files):
        yield file, result


def user_images_error(bad: BadFiles) -> UserError:
    """Tells every bad image by its line in the label file: its name may be a patient's."""
    problems = Problems()
    for file, each in bad:
        report_bad_image(file, each, problems)
    return problems.error("the images")


def cached_images(
    files: Sequence[ImageFile],
    decoding: Decoding,
    cache: Path,
    error_of: Callable[[BadFiles], UserError] = user_images_error,
) -> Tensor:
    """The images (N, channels, size, size) in the order of ``files``, decoded if need be.

    Raises what ``error_of`` makes of all bad images together.
    """
    shape = (decoding.channels, decoding.size, decoding.size)
    return cached_pixels(
        files,
        shape,
        lambda path: decode_image(path, decoding).pixels,
        [LAYOUT_VERSION, asdict(decoding)],
        cache,
        error_of,
    )


def cached_pixels(
    files: Sequence[ImageFile],
    shape: tuple[int, ...],
    decode: Callable[[Path], Pixels],
    settings: list[Any],
    cache: Path,
    error_of: Callable[[BadFiles], UserError],
) -> Tensor:
    """The same with any decoder to ``shape``; ``settings``, as in JSON, are all that decides it."""
    row_bytes = math.prod(shape)
    byte_count = len(files) * row_bytes
    path = cache / f"images-{_key(files, settings)}.u8"
    if not _is_complete(path, byte_count):
        part = path.with_suffix(".part")
        with cache_lock(path.with_suffix(".lock")):
            if not _is_complete(path, byte_count):  # another run may have made it meanwhile
                _check_space(part, byte_count)
                bad = _decode_into(part, files, decode, row_bytes)
                if bad:
                    part.unlink()
                    raise error_of(bad)
                part.replace(path)
    return open_mapped(path).view(-1, *shape)


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
    part: Path, files: Sequence[ImageFile], decode: Callable[[Path], Pixels], row_bytes: int
) -> BadFiles:
    """Write the rows that ``part`` lacks. A bad image ends the writing, not the looking."""
    bad: BadFiles = []
    with part.open("r+b" if part.exists() else "w+b") as out:
        done = min(out.seek(0, os.SEEK_END) // row_bytes, len(files))
        out.seek(done * row_bytes)
        results = decode_in_order(files[done:], decode, "decoding images")
        for count, (file, result) in enumerate(results, start=1):
            if isinstance(result, BadImage):
                bad.append((file, result))
            elif not bad:
                out.write(result.data)
            if count % CHUNK == 0:
                _sync(out)
        _sync(out)
    return bad


def report_bad_image(file: ImageFile, bad: BadImage, problems: Problems) -> None:
    problems.add(bad.kind, f"line {file.line}: {bad.detail}", private=repr(file.name))


def _sync(out: BinaryIO) -> None:
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


def _key(files: Sequence[ImageFile], settings: list[Any]) -> str:
    digest = hashlib.blake2b(digest_size=12)
    digest.update(json.dumps(settings).encode())
    for file in files:
        status = file.path.stat()
        entry = [file.name, status.st_size, status.st_mtime_ns]
        digest.update(json.dumps(entry).encode() + b"\n")
    return digest.hexdigest()
