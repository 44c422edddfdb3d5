"""The cache folder: made when it is needed, written by one run at a time."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from fedquilt.errors import UserError


@contextmanager
def writing(lock: Path) -> Iterator[None]:
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
