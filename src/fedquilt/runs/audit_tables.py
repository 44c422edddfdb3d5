"""Tables of attacks and privacy audits beside a run, which its report shows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedquilt.core.atomic_files import write_json

AUDITS = "audits"  # a folder in the run folder


def write_audit_table(
    folder: Path,
    name: str,
    title: str,
    words: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
) -> Path:
    """Write ``audits/NAME.json``; a table of that name is replaced."""
    table: dict[str, Any] = {
        "title": title,
        "words": words,
        "columns": list(columns),
        "rows": [list(row) for row in rows],
    }
    path = folder / AUDITS / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, table)
    return path
