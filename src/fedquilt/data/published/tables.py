"""Read published CSV and JSON files; errors name the data set and its download location."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedquilt.core.wording import counted
from fedquilt.data.published.image_table import ImageTable
from fedquilt.data.published.origin import Origin


def read_columns(origin: Origin, path: Path, *names: str) -> tuple[list[str], ...]:
    """The stripped cells of the columns ``names``; other columns are ignored.

    Unnamed and repeated columns are allowed, because NIH's table has them.
    """
    columns: tuple[list[str], ...] = tuple([] for _ in names)
    try:
        with origin.reading(path), path.open(encoding="utf-8-sig", newline="") as file:
            separator = "\t" if "\t" in file.readline() else ","
            file.seek(0)
            reader = csv.reader(file, delimiter=separator, strict=True)
            header = [cell.strip() for cell in next(reader, [])]
            positions = [_position(origin, path, header, name) for name in names]
            for row in reader:
                if len(row) <= max(positions):
                    raise origin.wrong(
                        path,
                        f"has {counted(len(row), 'cell')} in line {reader.line_num}",
                        f"at least {max(positions) + 1}, as in the header",
                    )
                for cells, position in zip(columns, positions):
                    cells.append(row[position].strip())
    except csv.Error as error:
        raise origin.wrong(path, f"is not CSV text ({error})", "the file as published") from None
    if not columns[0]:
        raise origin.wrong(path, "has no rows", "a header and one row per image")
    return columns


def _position(origin: Origin, path: Path, header: list[str], name: str) -> int:
    if name in header:
        return header.index(name)
    found = f"has no column {name!r}, only {', '.join(header) or 'an empty header'}"
    raise origin.wrong(path, found, "the columns as published")


def read_json(
    origin: Origin,
    path: Path,
    kind: type,
    each: Callable[[dict[str, Any]], Any] | None = None,
) -> Any:
    """Read a document of type ``kind``; ``each`` is applied to every object while reading."""
    with origin.reading(path):
        content = path.read_bytes()
    try:
        document = json.loads(content, object_hook=each)
    except ValueError as error:  # bad JSON, or bytes that are not text
        raise origin.wrong(path, f"is not JSON ({error})", "the file as published") from None
    if not isinstance(document, kind):
        found = f"holds a {type(document).__name__}"
        raise origin.wrong(path, found, f"a {kind.__name__} as published")
    return document


def with_groups(
    origin: Origin, table: ImageTable, path: Path, columns: tuple[str, str], images: tuple[str, str]
) -> ImageTable:
    """Add every image's group to the table, from the image and group columns of a CSV file.

    ``images`` is what an error calls one image, and several, that are missing in that file.
    """
    names, groups = read_columns(origin, path, *columns)
    group_of = dict(zip(names, groups))
    unknown = [name for name in table.ids if name not in group_of]
    if unknown:
        found = f"lacks {counted(len(unknown), *images)}, such as {unknown[0]}"
        raise origin.wrong(path, found, "a row for each")
    return replace(table, groups=tuple(group_of[name] for name in table.ids))
