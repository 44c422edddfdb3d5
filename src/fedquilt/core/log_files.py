"""Log files of programs that run for months: limited in size, and the last few are kept."""

from __future__ import annotations

import os
import shutil
from logging.handlers import RotatingFileHandler
from pathlib import Path

from fedquilt.core.shown_text import LOG_FORMAT, EscapedFormatter

MAX_LOG_BYTES, KEPT_LOGS = 20 * 2**20, 10


def rotating_log(path: Path) -> RotatingFileHandler:
    """Return a handler that writes escaped records, and begins a new file when one is full."""
    handler = RotatingFileHandler(path, maxBytes=MAX_LOG_BYTES, backupCount=KEPT_LOGS)
    handler.setFormatter(EscapedFormatter(LOG_FORMAT))
    return handler


def set_aside(path: Path) -> None:
    """Rename a log, so that a new one can begin; the oldest of more than ``KEPT_LOGS`` goes."""
    if path.exists():
        _shift(path)
        path.replace(_numbered(path, 1))


def cut_if_full(path: Path) -> None:
    """Copy a full log aside and empty it in place, because other programs write to it.

    What they write between the two is lost. They must have opened it for appending.
    """
    if path.stat().st_size <= MAX_LOG_BYTES:
        return
    _shift(path)
    shutil.copy(path, _numbered(path, 1))
    os.truncate(path, 0)


def _shift(path: Path) -> None:
    for number in range(KEPT_LOGS, 1, -1):
        if _numbered(path, number - 1).exists():
            _numbered(path, number - 1).replace(_numbered(path, number))


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")
