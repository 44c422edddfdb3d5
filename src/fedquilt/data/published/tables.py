"""Published CSV and JSON files; an unexpected layout is an error with its origin."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedquilt.data.published.image_table import ImageTable
from fedquilt.data.published.origin import Origin


def read_columns(origin: Origin, path: Path, *names: str) -> tuple[list[str], ...]:
    """The cells of the columns ``names``, stripped; other columns are passed over.

    Columns without a name or with a repeated one are no error: NIH's own table has them.
    """
    columns: tuple[list[str], ...] = tuple([] for _ in names)
    try:
        with origin.reading(path), path.open(encoding="utf-8-sig", newline="") as file:
            separator = "\t" if "\t" in file.readline() else ","
            file.seek(0)
            reader = csv.reader(file, delimiter=separator, strict=True)
            header = [cell.strip() for cell in next(reader, [])]
            places = [_place(origin, path, header, name) for name in names]
            for row in reader:
                if len(row) <= max(places):
                    raise origin.wrong(
                        path,
                        f"has {len(row)} cells in line {reader.line_num}",
                        f"at least {max(places) + 1}, as in the header",
                    )
                for cells, place in zip(columns, places):
                    cells.append(row[place].strip())
    except csv.Error as error:
        raise origin.wrong(path, f"is not CSV text ({error})", "the file as published") from None
    if not columns[0]:
        raise origin.wrong(path, "has no rows", "a header and one row per image")
    return columns


def with_groups(
    origin: Origin, table: ImageTable, path: Path, columns: tuple[str, str], images: str
) -> ImageTable:
    """The table with every image's group, from the columns of image and group in another file.

    ``images`` is what an error calls the images that are not in that file.
    """
    names, groups = read_columns(origin, path, *columns)
    group_of = dict(zip(names, groups))
    unknown = [name for name in table.ids if name not in group_of]
    if unknown:
        found = f"lacks {len(unknown):,} {images}, such as {unknown[0]}"
        raise origin.wrong(path, found, "a row for each")
    return replace(table, groups=tuple(group_of[name] for name in table.ids))


def _place(origin: Origin, path: Path, header: list[str], name: str) -> int:
    if name in header:
        return header.index(name)
    raise origin.wrong(path, f"has no column {name!r}", f"it among {', '.join(header) or 'none'}")


def read_json(
    origin: Origin,
    path: Path,
    kind: type,
    each: Callable[[dict[str, Any]], Any] | None = None,
) -> Any:
    """The document, a ``kind``; ``each`` may make every object smaller as it is read."""
    with origin.reading(path):
        content = path.read_bytes()
    try:
        document = json.loads(content, object_hook=each)
    except ValueError as error:  # bad JSON, or bytes that are no text
        raise origin.wrong(path, f"is not JSON ({error})", "the file as published") from None
    if not isinstance(document, kind):
        found = f"holds a {type(document).__name__}"
        raise origin.wrong(path, found, f"a {kind.__name__} as published")
    return document
