"""What a reproduced table leaves on disk: all numbers as JSON and CSV, and the picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedquilt.atomic_files import write_json
from fedquilt.reports.reproduced_picture import save_reproduced_picture
from fedquilt.reports.reproduced_table import write_csv


def write_reproduced(
    summary: Mapping[str, Any], out: Path, command: str, *, with_picture: bool = False
) -> None:
    """``table.json``, ``table.csv`` and ``table.png`` in ``out``; nothing while nothing has run."""
    if not summary["rows"]:
        return
    write_json(out / "table.json", {"command": command, **summary})
    write_csv(summary, out / "table.csv", command)
    if with_picture:
        save_reproduced_picture(summary, out / "table.png")
