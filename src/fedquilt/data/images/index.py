"""Index of image files by name: each folder is listed once, instead of one lookup per image."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedquilt.data.images.decoding import SUFFIXES
from fedquilt.data.published.origin import Origin


@dataclass(frozen=True)
class ImageFolders:
    """The folders in which the images of a published data set may be."""

    origin: Origin
    root: Path
    patterns: tuple[str, ...]  # of folders below the root; the root is searched last
    expected: str  # the folders in words, for error messages

    def locate(self, names: Sequence[str]) -> list[Path]:
        """The file of each name; the ending may differ, so that converted images are found."""
        index = self.index()
        stems = [image_stem(name) for name in names]
        missing = [name for name, stem in zip(names, stems) if stem not in index]
        if missing:
            hint = (
                f"{len(missing):,} of {len(names):,} images are missing; expected {self.expected}"
            )
            raise self.origin.missing(self.root, f"image {missing[0]}", hint=hint)
        return [index[stem] for stem in stems]

    def index(self) -> dict[str, Path]:
        """All image files by name without ending; the first folder with a name wins."""
        found: dict[str, Path] = {}
        for folder in self._folders():
            with self.origin.reading(folder), os.scandir(folder) as entries:
                for entry in entries:
                    stem = image_stem(entry.name)
                    if stem != entry.name and entry.is_file():  # not a folder or a broken link
                        found.setdefault(stem, folder / entry.name)
        return found

    def _folders(self) -> list[Path]:
        found = [path for pattern in self.patterns for path in sorted(self.root.glob(pattern))]
        return [*(path for path in found if path.is_dir()), self.root]


def image_stem(name: str) -> str:
    """``a`` for ``a.png``; a name without an image ending is left unchanged."""
    stem, suffix = os.path.splitext(name)  # noqa: PTH122 (a name, not a path)
    return stem if suffix.lower() in SUFFIXES else name
