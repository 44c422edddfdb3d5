"""A published data set's name and download location, for error messages."""

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
from fedquilt.data.source import Source, Splits

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


@dataclass(frozen=True)
class Origin:
    """What a data set is called and where it is to be had, in words."""

    title: str
    place: str

    def find(self, folder: Path, *names: str) -> Path:
        """The first of ``names`` that is a file in ``folder``."""
        for name in names:
            if (folder / name).is_file():
                return folder / name
        raise self.missing(folder, *names)

    def find_folder(self, folder: Path, *names: str) -> Path:
        """The first of ``names`` that is a folder in ``folder``."""
        for name in names:
            if (folder / name).is_dir():
                return folder / name
        raise self.missing(folder, *names)

    def missing(self, folder: Path, *names: str, hint: str = "") -> UserError:
        wanted = " or ".join(names)
        if not folder.is_dir():
            found = f"there is no folder {folder}; give the one"
            if folder.exists():
                found = f"{folder} is a file; give the folder"
            return UserError(f"{self.title}: {found} that holds {wanted}, from {self.place}")
        remedy = found_nearby(folder, names) or " or ".join(
            each for each in (still_packed(folder), f"get it from {self.place}") if each
        )
        return UserError(
            f"{self.title}: {folder} holds no {wanted}; {remedy}" + (f". {hint}" if hint else "")
        )

    def read_text(self, path: Path) -> str:
        with self.reading(path):
            return path.read_text(encoding="utf-8-sig")

    @contextmanager
    def reading(self, path: Path) -> Iterator[None]:
        """Turns what the disk or the text decoder says of ``path`` into words with its origin."""
        try:
            yield
        except UnicodeDecodeError as error:
            raise self.wrong(path, f"is not text ({error})", "the file as published") from None
        except OSError as error:
            raise UserError(
                f"{self.title}: {path} cannot be read ({error.strerror or error}); make it "
                f"readable, or get it again from {self.place}"
            ) from error

    def wrong(self, path: Path, found: str, expected: str) -> UserError:
        return UserError(
            f"{self.title}: {path} {found}; expected {expected}. Get it again from {self.place}"
        )

    def check_md5(self, path: Path, published: str) -> None:
        with self.reading(path), path.open("rb") as file:
            digest = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False))
        if digest.hexdigest() != published:
            raise self.wrong(path, f"has the MD5 {digest.hexdigest()}", published)


@dataclass(frozen=True, kw_only=True)
class PublishedSource(Source):
    """``folder`` holds the published files; the first ``load`` prepares them in the cache."""

    folder: str  # of the published files
    origin: ClassVar[Origin]

    @property
    def root(self) -> Path:
        return Path(self.folder)

    @abstractmethod
    def load(self, cache: Path) -> Splits: ...
