"""Index of image files by name: each folder is listed once, instead of one lookup per image."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedquilt.core.errors import UserError
from fedquilt.core.wording import counted
from fedquilt.data.images.decoding import SUFFIXES
from fedquilt.data.published.origin import Origin


@dataclass(frozen=True)
class ImageFolders:
    """The folders in which the images of a published data set may be."""

    origin: Origin
    root: Path
    patterns: tuple[str, ...]  # of folders below the root; the root is searched last
    expected: str  # the folders in words, for error messages
    elsewhere: str = "**"  # further folders for missing images: archives are unpacked in many ways
    partial: bool = False  # missing images are left out

    def locate(self, names: Sequence[str]) -> list[Path]:
        """The file of each name; raise if one is missing.

        The ending may differ, so that converted images are found.
        """
        return [path for path in self.locate_some(names, partial=False) if path is not None]

    def locate_some(self, names: Sequence[str], *, partial: bool) -> list[Path | None]:
        """The file of each name; with ``partial`` None for a missing one, unless all are."""
        stems = [image_stem(name) for name in names]
        index = self.index(stems)
        missing = [name for name, stem in zip(names, stems) if stem not in index]
        if missing and (not partial or len(missing) == len(names)):
            hint = (
                f"missing: {len(missing):,} of {counted(len(names), 'image')}; expected "
                f"{self.expected}, or in any other folder below it"
            )
            if len(missing) < len(names):
                hint += "; to go on without them: `fedquilt data prepare --partial`"
            raise self.origin.missing(self.root, f"image {missing[0]}", hint=hint)
        return [index.get(stem) for stem in stems]

    def index(self, wanted: Sequence[str] = ()) -> dict[str, Path]:
        """All image files by name without ending; the first expected folder with a name wins.

        If they lack one of ``wanted``, the other folders are searched for those.
        """
        expected = self._folders()
        found: dict[str, Path] = {}
        for stem, path in self._files(expected):
            found.setdefault(stem, path)
        missing = {stem for stem in wanted if stem not in found}
        if not missing:
            return found
        further: dict[str, Path] = {}
        for stem, path in self._files(self._others(expected)):
            if stem in missing and further.setdefault(stem, path) != path:
                raise UserError(
                    f"{self.origin.title}: image {stem} is in {further[stem]} and in {path}; "
                    "remove the folder that is not meant, or give a folder with one of them"
                )
        return found | further

    def _files(self, folders: Sequence[Path]) -> Iterator[tuple[str, Path]]:
        for folder in folders:
            with self.origin.reading(folder), os.scandir(folder) as entries:
                for entry in sorted(entries, key=lambda entry: entry.name):
                    stem = image_stem(entry.name)
                    if stem != entry.name and entry.is_file():  # not a folder or a broken link
                        yield stem, folder / entry.name

    def _folders(self) -> list[Path]:
        found = [path for pattern in self.patterns for path in sorted(self.root.glob(pattern))]
        return [*(path for path in found if path.is_dir()), self.root]

    def _others(self, expected: Sequence[Path]) -> list[Path]:
        known = set(expected)
        below = sorted(self.root.glob(self.elsewhere))
        return [path for path in below if path.is_dir() and path not in known]


def image_stem(name: str) -> str:
    """``a`` for ``a.png``; a name without an image ending is left unchanged."""
    stem, suffix = os.path.splitext(name)  # noqa: PTH122 (a name, not a path)
    return stem if suffix.lower() in SUFFIXES else name
