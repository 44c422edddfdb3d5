"""Columns of a label file that are named for their role: site, patient and split."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from fedquilt.data.label_files.csv_rows import read_rows
from fedquilt.data.problems import Problems

ROLES = ("site", "patient", "split")


def recognised_columns(path: Path, image_column: str, taken: Collection[str]) -> dict[str, str]:
    """Return the column of each role that is named like it; ``taken`` has another use.

    Case does not matter. A file that cannot be read has none: reading it again reports why.
    """
    rows = read_rows(path, image_column, Problems())
    if rows is None:
        return {}
    free = [name for name in rows.header if name != image_column and name not in taken]
    by_role = {name.casefold(): name for name in reversed(free)}
    return {role: by_role[role] for role in ROLES if role in by_role}
