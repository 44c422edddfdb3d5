"""Where published files are that were not found: a folder nearby, or an archive still packed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz")
LOOKED_AT = 100  # folders below the given one: a hint must not take minutes on a slow disk
SHOWN = 3


def found_nearby(folder: Path, names: Sequence[str]) -> str:
    """``x.csv is in PLACE: ...`` where one of ``names`` is a level or two away; otherwise empty."""
    for place in (*_above(folder), *_below(folder, levels=2)):
        for name in names:
            if (place / name).exists():
                return f"{name} is in {place}: give that folder, or put it where it is looked for"
    return ""


def still_packed(folder: Path) -> str:
    """``unpack a.zip, b.zip`` where there are archives, in the folder or one below it."""
    found = [
        str((place / name).relative_to(folder))
        for place in (folder, *_below(folder, levels=1))
        for name in _names_in(place)
        if name.lower().endswith(ARCHIVES)
    ]
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return f"unpack {', '.join(found[:SHOWN])}{more}" if found else ""


def _above(folder: Path) -> list[Path]:
    """As the user wrote it where that can be said, so that "." does not end the way up."""
    whole = folder if folder.is_absolute() or len(folder.parts) > 2 else folder.absolute()
    return list(whole.parents)[:2]


def _below(folder: Path, *, levels: int) -> Iterator[Path]:
    level = [folder]
    for _ in range(levels):
        level = [inner for outer in level for inner in _folders_in(outer)][:LOOKED_AT]
        yield from level


def _folders_in(folder: Path) -> list[Path]:
    return [folder / name for name in _names_in(folder, folders_only=True)]


def _names_in(folder: Path, *, folders_only: bool = False) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(each.name for each in entries if not folders_only or each.is_dir())
    except OSError:  # a hint is no place to fail
        return []
