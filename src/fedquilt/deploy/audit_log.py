"""AuditLog: a log of the messages sent, received and refused, with sizes but no contents."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedquilt.core.payload import Update, update_bytes
from fedquilt.core.tree import leaves
from fedquilt.deploy.audit_chain import append_event


class AuditLog:
    """An append-only file with one JSON line per event, each with the hash of those before it."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._lock = threading.Lock()

    def record(self, event: str, **facts: Any) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        with self._lock:
            append_event(self._path, {"time": now, "event": event, **facts})


def part_sizes(update: Update) -> dict[str, dict[str, Any]]:
    """Return the kind and size of every part of an update, for the log."""
    return {
        name: {
            "kind": type(part).__name__,
            "numbers": sum(leaf.numel() for _, leaf in leaves(part.value)),
            "bytes": update_bytes({name: part}),
        }
        for name, part in update.items()
    }
