"""The cache of decoded images: one memory-mapped file per data set, and the cache's lock."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
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
from fedquilt.data.images.content_hash import is_intact, keep_hash
from fedquilt.data.images.decoding import Decoding, decode_image
from fedquilt.data.parallel import in_parallel
from fedquilt.data.problems import Problems

log = logging.getLogger(__name__)

LAYOUT_VERSION = 1  # raise it when decoding changes, so that older files are not used
CHUNK = 256  # images decoded at a time, and written between two syncs to disk

Result = TypeVar("Result")


@dataclass(frozen=True)
class ImageFile:
    """An image of a label file that was found on disk."""

    name: str  # relative to the image folder
    path: Path
    line: int  # in the label file


BadFiles: TypeAlias = list[tuple[ImageFile, BadImage]]


def user_images_error(bad: BadFiles) -> UserError:
    """One error for all bad images, by line in the label file: a name may identify a patient."""
    problems = Problems()
    for file, each in bad:
        report_bad_image(file, each, problems)
    return problems.error("the images")


def report_bad_image(file: ImageFile, bad: BadImage, problems: Problems) -> None:
    """Add a bad image to ``problems``; its name stays private."""
    problems.add(bad.kind, f"line {file.line}: {bad.detail}", private=repr(file.name))


def cached_images(
    files: Sequence[ImageFile],
    decoding: Decoding,
    cache: Path,
    error_of: Callable[[BadFiles], UserError] = user_images_error,
) -> Tensor:
    """The images (N, channels, size, size) in the order of ``files``; decoded if needed.

    Raises the error that ``error_of`` makes from all bad images.
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
    """Like ``cached_images`` with any decoder to ``shape``.

    ``settings`` are JSON values that identify the decoder and its settings.
    """
    image_bytes = math.prod(shape)
    byte_count = len(files) * image_bytes
    path = cache / f"images-{_key(files, settings)}.u8"
    if not _is_usable(path, byte_count):
        partial = path.with_suffix(".part")
        with cache_lock(path.with_suffix(".lock")):
            if not _is_usable(path, byte_count):  # another run may have made it in the meantime
                _check_space(partial, byte_count)
                bad = _decode_into(partial, files, decode, image_bytes)
                if bad:
                    partial.unlink()
                    raise error_of(bad)
                keep_hash(partial, path)
                partial.replace(path)
    return open_mapped(path).view(-1, *shape)


def _is_usable(path: Path, byte_count: int) -> bool:
    if not path.is_file() or path.stat().st_size != byte_count:
        return False
    if not is_intact(path):
        log.warning("the decoded images in %s are damaged; they are decoded again", path.name)
        return False
    return True


def _check_space(partial: Path, byte_count: int) -> None:
    present = partial.stat().st_size if partial.exists() else 0
    free = shutil.disk_usage(partial.parent).free
    if byte_count - present > free:
        raise UserError(
            f"the decoded images need {byte_count / 1e9:.1f} GB in the cache folder "
            f"{partial.parent}, {free / 1e9:.1f} GB are free; choose another cache folder or a "
            "smaller size"
        )


def _key(files: Sequence[ImageFile], settings: list[Any]) -> str:
    digest = hashlib.blake2b(digest_size=12)
    digest.update(json.dumps(settings).encode())
    for file in files:
        status = file.path.stat()
        entry = [file.name, status.st_size, status.st_mtime_ns]
        digest.update(json.dumps(entry).encode() + b"\n")
    return digest.hexdigest()


def _decode_into(
    partial: Path, files: Sequence[ImageFile], decode: Callable[[Path], Pixels], image_bytes: int
) -> BadFiles:
    """Write the images that ``partial`` lacks; return the bad images.

    After a bad image nothing more is written, but all images are still checked.
    """
    bad: BadFiles = []
    with partial.open("r+b" if partial.exists() else "w+b") as out:
        done = min(out.seek(0, os.SEEK_END) // image_bytes, len(files))
        out.seek(done * image_bytes)
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


def _sync(out: BinaryIO) -> None:
    out.flush()
    os.fsync(out.fileno())


def decode_in_order(
    files: Sequence[ImageFile], decode: Callable[[Path], Result], title: str
) -> Iterator[tuple[ImageFile, Result | BadImage]]:
    """Decode in parallel and yield the results in order; a bad image yields its ``BadImage``."""

    def attempt(file: ImageFile) -> Result | BadImage:
        try:
            return decode(file.path)
        except BadImage as problem:
            return problem

    # Results come first, so that zip exhausts them and the progress bar finishes.
    for result, file in zip(in_parallel(attempt, files, title, in_flight=CHUNK), files):
        yield file, result


def open_mapped(path: Path) -> Tensor:
    """Memory-map a file as a uint8 tensor; writing to the tensor does not change the file.

    The mapping is private and reserves no memory. Linux refuses the plain copy-on-write mapping
    of numpy or torch if the file is larger than the memory.
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


@contextmanager
def cache_lock(lock: Path) -> Iterator[None]:
    """Hold the lock while writing to its folder; turn disk errors into a ``UserError``.

    Other runs wait. The system releases the lock of a run that died.
    """
    cache = lock.parent
    try:
        cache.mkdir(parents=True, exist_ok=True)
        file = lock.open("w")
    except OSError as error:
        raise UserError(
            f"the cache folder {cache} cannot be written to ({error.strerror or error}); choose "
            "another one (--to in prepare, --cache in runs), or make it writable"
        ) from error
    with file:
        _wait_for(file)
        try:
            yield
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise UserError(
                f"the disk of the cache folder {cache} is full; free some space or choose another "
                "cache folder"
            ) from error


def _wait_for(file: IO[str]) -> None:
    if sys.platform == "win32":  # no flock: two runs write the same bytes twice
        return
    import fcntl

    with suppress(OSError):  # a file system without locks: the same
        fcntl.flock(file, fcntl.LOCK_EX)
