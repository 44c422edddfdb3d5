"""PublishedSource: a data set in the files its makers publish, and errors that say where from."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from fedquilt.data.source import Source, Splits
from fedquilt.errors import UserError


@dataclass(frozen=True)
class Origin:
    """What a data set is called and where it is to be had, in words."""

    title: str
    place: str

    def find(self, folder: Path, *names: str) -> Path:
        """The first of ``names`` (files or folders) that there is in ``folder``."""
        for name in names:
            if (folder / name).exists():
                return folder / name
        raise self.missing(folder, *names)

    def missing(self, folder: Path, *names: str, hint: str = "") -> UserError:
        wanted = " or ".join(names)
        if not folder.is_dir():
            return UserError(
                f"{self.title}: there is no folder {folder}; give the one that holds {wanted}, "
                f"from {self.place}"
            )
        return UserError(
            f"{self.title}: {folder} holds no {wanted}; get it from {self.place}"
            + (f". {hint}" if hint else "")
        )

    def wrong(self, path: Path, found: str, expected: str) -> UserError:
        return UserError(
            f"{self.title}: {path} {found}; expected {expected}. Get it again from {self.place}"
        )

    def check_md5(self, path: Path, published: str) -> None:
        with path.open("rb") as file:
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
