"""Files that are either whole or not there, whenever the process dies."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any


def write_bytes(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Write beside the target, then rename over it; ``durable`` waits for the disk."""
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
    """Readable JSON; NaN is refused, because JSON has none."""
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    write_bytes(path, (text + "\n").encode())


def wait_for_disk(path: Path) -> None:
    """Ask the disk to hold a file or a folder's names; some file systems cannot for folders."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
