"""The hash of a cache file's content, kept beside it: a file of the right size may be damaged."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from fedquilt.core.atomic_files import write_json

log = logging.getLogger(__name__)

BLOCK = 2**26  # bytes hashed by one thread at a time
READ = 2**20
_checked: set[tuple[str, int, int, int]] = set()  # files that this process found intact


def hash_file(path: Path) -> Path:
    """Return the file with the hash of a cache file."""
    return path.with_suffix(".hash.json")


def keep_hash(content: Path, path: Path) -> None:
    """Write the hash of ``content``, which is about to become the cache file ``path``."""
    write_json(hash_file(path), {"hash": content_hash(content)})


def is_intact(path: Path) -> bool:
    """Return whether a cache file has the content it was written with.

    Read in full once per process. A file of an earlier fedquilt has no hash yet and gets one.
    """
    status = path.stat()
    mark = (str(path), status.st_ino, status.st_mtime_ns, status.st_size)
    if mark in _checked:
        return True
    try:
        expected = json.loads(hash_file(path).read_text(encoding="utf-8"))["hash"]
    except FileNotFoundError:
        with suppress(OSError):  # a cache that others own
            keep_hash(path, path)
        _checked.add(mark)
        return True
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        expected = None
    if content_hash(path) != expected:
        return False
    _checked.add(mark)
    return True


def damaged_files(cache: Path) -> list[Path]:
    """Delete the damaged files of decoded images in a cache, and return them."""
    damaged = [path for path in sorted(cache.glob("images-*.u8")) if not is_intact(path)]
    for path in damaged:
        path.unlink()
        hash_file(path).unlink(missing_ok=True)
    return damaged


def content_hash(path: Path) -> str:
    """Hash the file's blocks on all cores, and then their hashes."""
    starts = range(0, path.stat().st_size, BLOCK)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        blocks = pool.map(lambda start: _block_hash(path, start), starts)
        return hashlib.sha256(b"".join(blocks)).hexdigest()


def _block_hash(path: Path, start: int) -> bytes:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        file.seek(start)
        for _ in range(BLOCK // READ):
            digest.update(file.read(READ))
    return digest.digest()
