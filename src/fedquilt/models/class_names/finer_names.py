"""Finer names of classes: what a coarse class covers, from a JSON file or FLAIR's folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from fedquilt.core.errors import UserError, nearest
from fedquilt.data.sources.flair.labels import finer_labels
from fedquilt.data.sources.flair.load import Flair

JOINED = 20  # at most so many names in a text, as in FedLGT's public code


def read_finer_names(place: str, class_names: Sequence[str]) -> list[tuple[str, ...]]:
    """The finer names of each class, most frequent first; ``place`` may cover other classes."""
    found = _read(place)
    for name in class_names:
        if not found.get(name):
            raise UserError(
                f"{place} has no finer names of class {name!r}{nearest(name, found)}; it needs a "
                "list of names for each class (docs/guides/text_embeddings.md)"
            )
    return [found[name] for name in class_names]


def joined(names: Sequence[str]) -> str:
    return ",".join(names[:JOINED])


@lru_cache(maxsize=4)
def _read(place: str) -> dict[str, tuple[str, ...]]:
    path = Path(place)
    if path.is_dir():
        return finer_labels(Flair.origin, path)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(
            f"method.finer_names: {place} cannot be read ({error}); expected a JSON file with a "
            "list of names for each class, or the folder of FLAIR"
        ) from error
    is_table = isinstance(found, dict) and all(
        isinstance(names, list) and all(isinstance(name, str) for name in names)
        for names in found.values()
    )
    if not is_table:
        raise UserError(f"method.finer_names: {place} must hold a list of names for each class")
    return {name: tuple(names) for name, names in found.items()}
