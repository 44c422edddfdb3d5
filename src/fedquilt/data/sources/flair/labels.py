"""FLAIR's list of images with their users, labels and official part."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from fedquilt.data.published.image_table import ImageTable
from fedquilt.data.published.origin import Origin
from fedquilt.data.published.tables import read_json

Grain: TypeAlias = Literal["coarse", "fine"]
KEYS: dict[str, str] = {"coarse": "labels", "fine": "fine_grained_labels"}
PARTS = ("train", "val", "test")
SAME = {"dev": "val"}  # FLAIR's own page uses both words


def read_entries(origin: Origin, path: Path, grain: Grain) -> tuple[ImageTable, tuple[str, ...]]:
    """The images, whose groups and sites are their users, and the official part of each."""
    entries = read_json(origin, path, list)
    try:
        table = _table(entries, KEYS[grain])
        parts = tuple(SAME.get(entry["partition"], entry["partition"]) for entry in entries)
    except (KeyError, TypeError) as error:
        found = f"has an entry of another shape ({type(error).__name__}: {error})"
        expected = "user_id, image_id, labels, fine_grained_labels and partition in each"
        raise origin.wrong(path, found, expected) from None
    strange = set(parts).difference(PARTS)
    if strange or not entries:
        found = f"names the parts {sorted(map(str, strange))}" if strange else "is an empty list"
        raise origin.wrong(path, found, "images of the parts train, val and test")
    _refuse_shared_users(origin, path, table, parts)
    return table, parts


def _table(entries: Sequence[dict[str, Any]], key: str) -> ImageTable:
    classes = sorted({name for entry in entries for name in entry[key]})
    column = {name: number for number, name in enumerate(classes)}
    labels = np.zeros((len(entries), len(classes)), np.uint8)
    for row, entry in enumerate(entries):
        labels[row, [column[name] for name in entry[key]]] = 1
    users = tuple(str(entry["user_id"]) for entry in entries)
    return ImageTable(
        classes=tuple(classes),
        ids=tuple(str(entry["image_id"]) for entry in entries),
        lines=tuple(range(1, len(entries) + 1)),
        labels=labels,
        groups=users,
        sites=users,
    )


def _refuse_shared_users(
    origin: Origin, path: Path, table: ImageTable, parts: Sequence[str]
) -> None:
    part_of: dict[str, str] = {}
    for user, part in zip(table.groups or (), parts):
        if part_of.setdefault(user, part) != part:
            found = f"puts a user in both {part_of[user]} and {part}"
            raise origin.wrong(path, found, "each user in one part")
