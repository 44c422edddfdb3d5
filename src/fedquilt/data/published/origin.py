"""Origin: a published data set's name and download location, and error messages with both."""

from __future__ import annotations

import hashlib
import os
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from fedquilt.core.errors import UserError
from fedquilt.core.settings import added
from fedquilt.data.source import Source, Splits

ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz")
SEARCHED_FOLDERS = 100  # per level, so that a hint does not take minutes on a slow disk
SHOWN_ARCHIVES = 3


@dataclass(frozen=True)
class Origin:
    """A data set's name and download location, for error messages."""

    title: str
    location: str  # where to download it, in words

    def find(self, folder: Path, *names: str) -> Path:
        """The first of ``names`` that is a file in ``folder``; raise if there is none."""
        for name in names:
            if (folder / name).is_file():
                return folder / name
        raise self.missing(folder, *names)

    def find_folder(self, folder: Path, *names: str) -> Path:
        """The first of ``names`` that is a folder in ``folder``, or the only one below it."""
        for name in names:
            if (folder / name).is_dir():
                return folder / name
        below = {path for name in names for path in folder.glob(f"**/{name}") if path.is_dir()}
        if len(below) == 1:  # archives are unpacked in many ways
            return below.pop()
        raise self.missing(folder, *names)

    def missing(self, folder: Path, *names: str, hint: str = "") -> UserError:
        """The error for a folder that has none of ``names``."""
        wanted = " or ".join(names)
        if not folder.is_dir():
            found = f"there is no folder {folder}; give the folder"
            if folder.exists():
                found = f"{folder} is a file; give the folder"
            return UserError(f"{self.title}: {found} that holds {wanted}, from {self.location}")
        remedy = nearby_hint(folder, names) or " or ".join(
            each for each in (archive_hint(folder), f"download it from {self.location}") if each
        )
        return UserError(
            f"{self.title}: {folder} holds no {wanted}; {remedy}" + (f". {hint}" if hint else "")
        )

    def read_text(self, path: Path) -> str:
        with self.reading(path):
            return path.read_text(encoding="utf-8-sig")

    @contextmanager
    def reading(self, path: Path) -> Iterator[None]:
        """Turn disk and text decoding errors for ``path`` into a ``UserError`` with advice."""
        try:
            yield
        except UnicodeDecodeError as error:
            raise self.wrong(path, f"is not text ({error})", "the file as published") from None
        except OSError as error:
            raise UserError(
                f"{self.title}: {path} cannot be read ({error.strerror or error}); make it "
                f"readable, or download it again from {self.location}"
            ) from error

    def wrong(self, path: Path, found: str, expected: str) -> UserError:
        """The error for a file with unexpected content."""
        return UserError(
            f"{self.title}: {path} {found}; expected {expected}. "
            f"Download it again from {self.location}"
        )

    def check_md5(self, path: Path, published: str) -> None:
        """Raise a ``UserError`` if the file's MD5 is not the published one."""
        with self.reading(path), path.open("rb") as file:
            digest = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False))
        if digest.hexdigest() != published:
            raise self.wrong(path, f"has the MD5 {digest.hexdigest()}", published)


@dataclass(frozen=True, kw_only=True)
class PublishedSource(Source):
    """A source of published files; the first ``load`` prepares them in the cache."""

    folder: str  # holds the published files
    origin: ClassVar[Origin]
    goes_on_with: ClassVar[str | None] = None  # the setting, KEY=VALUE, that allows missing images

    @property
    def root(self) -> Path:
        return Path(self.folder)

    @abstractmethod
    def load(self, cache: Path) -> Splits: ...


@dataclass(frozen=True, kw_only=True)
class PublishedImages(PublishedSource):
    """A source of single image files, of which some may be missing."""

    partial: bool = added(False)  # True: images that are missing are left out, and counted

    goes_on_with: ClassVar[str | None] = "partial=true"


def nearby_hint(folder: Path, names: Sequence[str]) -> str:
    """``x.csv is in FOLDER: ...`` if one of ``names`` is up to two levels away; otherwise empty."""
    for candidate in (*_above(folder), *_below(folder, levels=2)):
        for name in names:
            if (candidate / name).exists():
                return f"{name} is in {candidate}: give that folder, or move it to the expected one"
    return ""


def archive_hint(folder: Path) -> str:
    """``unpack a.zip, b.zip`` if there are archives in the folder or one level below it."""
    found = [
        str((candidate / name).relative_to(folder))
        for candidate in (folder, *_below(folder, levels=1))
        for name in _names_in(candidate)
        if name.lower().endswith(ARCHIVES)
    ]
    more = f" and {len(found) - SHOWN_ARCHIVES} more" if len(found) > SHOWN_ARCHIVES else ""
    return f"unpack {', '.join(found[:SHOWN_ARCHIVES])}{more}" if found else ""


def _above(folder: Path) -> list[Path]:
    """Two parent folders, as the user wrote them; a short relative path is made absolute first."""
    whole = folder if folder.is_absolute() or len(folder.parts) > 2 else folder.absolute()
    return list(whole.parents)[:2]


def _below(folder: Path, *, levels: int) -> Iterator[Path]:
    level = [folder]
    for _ in range(levels):
        level = [inner for outer in level for inner in _folders_in(outer)][:SEARCHED_FOLDERS]
        yield from level


def _folders_in(folder: Path) -> list[Path]:
    return [folder / name for name in _names_in(folder, folders_only=True)]


def _names_in(folder: Path, *, folders_only: bool = False) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(each.name for each in entries if not folders_only or each.is_dir())
    except OSError:  # a hint must not raise
        return []
