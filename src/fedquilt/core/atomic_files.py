"""Atomic file writes: a file is complete or absent, even if the process is killed."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any


def write_bytes(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Write to a temporary file beside ``path`` and rename it over ``path``.

    With ``durable``, also wait until the content and the new name are on disk.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    if durable:
        wait_for_disk(path.parent)


def write_json(path: Path, content: Any) -> None:
    """Write indented JSON; raise ValueError for NaN and infinity, which JSON does not have."""
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    write_bytes(path, (text + "\n").encode())


def wait_for_disk(path: Path) -> None:
    """Call fsync on a file or folder; ignore file systems that do not support it for folders."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
