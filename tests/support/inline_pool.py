"""A RunPool without processes: every run is done when it is submitted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedquilt.engines.options import EngineName, EngineOptions
from fedquilt.recipes.recipe import Recipe
from fedquilt.runs.experiment import run


class InlinePool:
    """Keeps the folders that it ran in ``submitted``."""

    submitted: list[Path]

    def __init__(
        self,
        *,
        cache: Path,
        workers: int | None = None,
        devices: Sequence[str] = ("cpu",),
        engine: EngineName | EngineOptions = "auto",
    ) -> None:
        self._cache, self._ended = cache, list[tuple[Path, BaseException | None]]()
        self.submitted = []

    has_room = True

    @property
    def is_idle(self) -> bool:
        return not self._ended

    def submit(self, recipe: Recipe, folder: Path) -> None:
        self.submitted.append(folder)
        error = None
        try:
            run(recipe, folder, resume=True, cache=self._cache, engine="sequential")
        except ValueError as problem:
            error = problem
        self._ended.append((folder, error))

    def finished(self) -> list[tuple[Path, BaseException | None]]:
        ended, self._ended = self._ended, []
        return ended

    def __enter__(self) -> InlinePool:
        return self

    def __exit__(self, *details: object) -> None:
        pass
