"""Given: data that a Python program holds, named in a recipe by the hash of their content."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from fedquilt.core.errors import UserError
from fedquilt.core.wording import counted
from fedquilt.data.images.decoding import Decoding
from fedquilt.data.source import Source, Splits


class Content(Protocol):
    """What was given: images in memory, or image files."""

    def load(self, cache: Path) -> Splits: ...


@dataclass(frozen=True, kw_only=True)
class Given(Source):
    """Arrays, a torch Dataset, or files with labels, given in Python; see this source's README.md.

    A run folder holds these settings and not the data: a resumed run is given the data again, and
    another content is refused like any other change of the recipe.
    """

    content: str  # hash of images, labels, mask, patients, sites and splits
    classes: tuple[str, ...]
    images: int  # of all splits
    shape: tuple[int, int, int]  # channels, height, width
    decoding: Decoding | None = None  # how files were read, and how `predict` reads new ones

    _content: ClassVar[Content | None] = None  # of an instance that was given data

    def holding(self, content: Content) -> Given:
        """Attach the data, which are no setting."""
        object.__setattr__(self, "_content", content)
        return self

    def load(self, cache: Path) -> Splits:
        """Return the data; image files are decoded into ``cache``."""
        if self._content is None:
            raise UserError(
                f"the data of this recipe ({counted(self.images, 'image')}, {self.content}) were "
                "given in Python and are in no file that fedquilt knows; run the script that gives "
                "them again (fedquilt.run(..., resume=True) goes on), or evaluate on files with "
                "--data FOLDER --labels CSV"
            )
        return self._content.load(cache)
