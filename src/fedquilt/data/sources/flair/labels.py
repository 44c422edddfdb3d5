"""Labels, users and official splits from FLAIR's list of images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from fedquilt.data.published.image_table import ImageTable
from fedquilt.data.published.origin import Origin
from fedquilt.data.published.tables import read_json

Grain: TypeAlias = Literal["coarse", "fine"]
KEYS: dict[str, str] = {"coarse": "labels", "fine": "fine_grained_labels"}
RELATIONSHIP = "label_relationship.txt"  # lines "fine -> coarse"
SPLITS = ("train", "val", "test")
ALIASES = {"dev": "val"}  # FLAIR's page uses both words


def read_entries(origin: Origin, path: Path, grain: Grain) -> tuple[ImageTable, tuple[str, ...]]:
    """The table of images, with users as groups and sites, and the official split of each."""
    entries = read_json(origin, path, list)
    try:
        table = _table(entries, KEYS[grain])
        splits = tuple(ALIASES.get(entry["partition"], entry["partition"]) for entry in entries)
    except (KeyError, TypeError) as error:
        found = f"has an entry with an unexpected layout ({type(error).__name__}: {error})"
        expected = "user_id, image_id, labels, fine_grained_labels and partition in each"
        raise origin.wrong(path, found, expected) from None
    unknown = set(splits).difference(SPLITS)
    if unknown or not entries:
        found = f"names the splits {sorted(map(str, unknown))}" if unknown else "is an empty list"
        raise origin.wrong(path, found, "images of the splits train, val and test")
    _check_no_shared_user(origin, path, table, splits)
    return table, splits


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


def _check_no_shared_user(
    origin: Origin, path: Path, table: ImageTable, splits: Sequence[str]
) -> None:
    split_of: dict[str, str] = {}
    for user, split in zip(table.groups or (), splits):
        if split_of.setdefault(user, split) != split:
            found = f"puts a user in both {split_of[user]} and {split}"
            raise origin.wrong(path, found, "each user in one split")


def finer_labels(origin: Origin, root: Path) -> dict[str, tuple[str, ...]]:
    """Coarse class -> its fine ones, by their frequency in all images, as FedLGT's code has it."""
    path = origin.find(root, RELATIONSHIP)
    entries = read_json(origin, origin.find(root, "labels_and_metadata.json"), list)
    count = Counter(name for entry in entries for name in entry[KEYS["fine"]])
    found: dict[str, list[str]] = {}
    for line in filter(None, map(str.strip, origin.read_text(path).splitlines())):
        fine, arrow, coarse = (part.strip() for part in line.partition("->"))
        if not (fine and arrow and coarse):
            raise origin.wrong(path, f"has the line {line!r}", "lines such as 'oak -> plant'")
        found.setdefault(coarse, []).append(fine)
    return {
        coarse: tuple(sorted(fine, key=lambda name: (count[name], name), reverse=True))
        for coarse, fine in found.items()
    }
