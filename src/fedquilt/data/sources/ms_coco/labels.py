"""Labels from COCO's instance annotations: a class is present if any object of it is."""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import Any

import numpy as np

from fedquilt.data.published.image_table import ImageTable
from fedquilt.data.published.origin import Origin
from fedquilt.data.published.tables import read_json


def read_instances(origin: Origin, path: Path) -> ImageTable:
    """All images of the file, including those without objects; classes in order of their ids."""
    document = read_json(origin, path, dict, _without_outline)
    try:
        return _table(document)
    except (KeyError, TypeError, AttributeError) as error:
        found = f"has an entry with an unexpected layout ({type(error).__name__}: {error})"
        expected = "images (id, file_name), categories (id, name), annotations (image_id, "
        raise origin.wrong(path, found, f"{expected}category_id)") from None


def _table(document: dict[str, Any]) -> ImageTable:
    categories = sorted(document["categories"], key=lambda each: each["id"])
    column = {each["id"]: number for number, each in enumerate(categories)}
    row = {each["id"]: number for number, each in enumerate(document["images"])}
    labels = np.zeros((len(row), len(column)), np.uint8)
    found = document["annotations"]
    labels[
        [row[each["image_id"]] for each in found], [column[each["category_id"]] for each in found]
    ] = 1
    return ImageTable(
        classes=tuple(str(each["name"]) for each in categories),
        ids=tuple(PurePath(each["file_name"]).stem for each in document["images"]),
        lines=tuple(range(1, len(row) + 1)),
        labels=labels,
    )


def _without_outline(entry: dict[str, Any]) -> dict[str, Any]:
    """Drop the outlines of objects while reading, as they are most of the file."""
    entry.pop("segmentation", None)
    return entry
