"""RunFolder: the files of a run, locked by one process at a time, and its history by round."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from fedquilt.core.atomic_files import wait_for_disk, write_bytes, write_json
from fedquilt.core.errors import UserError
from fedquilt.core.parsed_text import parse_json, parse_records
from fedquilt.core.wording import counted
from fedquilt.data.allocation import Allocation
from fedquilt.recipes.recipe import Recipe, recipe_from

LOCK = ".claim"
EXTENSIONS = ("rounds", "validation.patience")  # say how long a run is, not what a round does
MODELS_AT_SITES = (
    "it holds no model: with this method every site has its own model, which never leaves the "
    "site; a site exports its model with: fedquilt site model KIT SITE_TOML --out FOLDER"
)


class RunFolder:
    """The files of a run, and the lock on its folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.recipe = path / "recipe.json"
        self.partition = path / "partition.npz"
        self.result = path / "result.json"
        self.model = path / "model.json"
        self.checkpoints = path / "checkpoints"
        self.pictures = path / "pictures"
        self.history = History(path / "history.jsonl")

    def begin(self, recipe: Recipe, *, resume: bool) -> ExitStack:
        """Create and lock the folder; closing the stack releases it.

        A folder that nothing was written to is then removed again.
        """
        if self.recipe.exists():
            if not resume:
                raise UserError(
                    f"{self.path} already holds a run; continue it with --resume, "
                    "or give another folder with --out"
                )
            self._check_same_recipe(recipe)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"{self.path} cannot be a run folder: {error.strerror}; give another --out"
            ) from error
        held = ExitStack()
        held.callback(self._remove_unused)
        held.callback(self._lock().release)
        return held

    def keep(self, recipe: Recipe, allocation: Allocation) -> None:
        """Save the recipe and the allocation; raise UserError if a resumed run's data have changed.

        Call this when all that can be checked has been: from then on the folder refuses another
        recipe, such as the corrected one.
        """
        if self.partition.exists() and Allocation.load(self.partition).hash != allocation.hash:
            raise UserError(
                f"the data have changed since the run in {self.path} started: its clients would "
                "hold other images or labels; restore the data, or give another --out"
            )
        allocation.save(self.partition)
        write_json(self.recipe, recipe.to_dict())

    def validates_on_marked(self, recipe: Recipe) -> bool:
        """Whether images that a split column marks for validation are left out of training.

        A run that began before they were, and whose recipe does not validate, goes on as it began.
        """
        if recipe.validation.share > 0 or not self.partition.exists():
            return True
        return "validation" in Allocation.load(self.partition).protocol

    def read_recipe(self) -> Recipe:
        return recipe_from(self.read_json(self.recipe))

    def read_json(self, path: Path) -> Any:
        try:
            return parse_json(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise UserError(
                f"{self.path} holds no {path.name}: it is not a run folder, or the run has not "
                "written it yet"
            ) from None
        except ValueError as error:  # not JSON, or not text
            raise UserError(f"{path} is damaged: {error}") from error

    def _lock(self) -> FileLock:
        lock = FileLock(self.path / LOCK)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise UserError(
                f"another process is running in {self.path}; wait for it, or give another --out"
            ) from None
        return lock

    def _remove_unused(self) -> None:
        """If there is no run, remove the lock and empty folders, such as that of checkpoints."""
        if self.recipe.exists():
            return
        (self.path / LOCK).unlink(missing_ok=True)
        for folder in (self.checkpoints / "objects", self.checkpoints, self.path):
            with suppress(OSError):  # not there, or not empty: it holds files of the user
                folder.rmdir()

    def takes(self, recipe: Recipe) -> bool:
        """Whether a run of this recipe can begin here, or go on."""
        if not self.recipe.exists():
            return True
        try:
            self._check_same_recipe(recipe)
        except UserError:
            return False
        return True

    def _check_same_recipe(self, recipe: Recipe) -> None:
        saved, given = self.read_json(self.recipe), recipe.to_dict()
        differing = sorted(_differences(saved, given, ""), key=_names_first)
        if differing and set(differing) <= set(EXTENSIONS):
            self._check_extension(recipe, saved["rounds"])
        elif differing:
            raise UserError(
                f"{self.path} holds a run of another recipe; it differs in "
                f"{', '.join(differing[:8])}. Resume with the same recipe (or with none: "
                f"`fedquilt run --out {self.path} --resume`), or give another --out"
            )

    def _check_extension(self, recipe: Recipe, planned: int) -> None:
        """Raise UserError unless this length gives the bits of a run that was planned so."""
        done = len(self.history.read())
        if recipe.rounds < done:
            raise UserError(
                f"{self.path} has {counted(done, 'round')} already, so it cannot become a run of "
                f"{recipe.rounds}; give at least {done}, or another folder with --out"
            )
        if recipe.rounds != planned and recipe.privacy.adds_noise:
            raise UserError(
                f"the noise of the run in {self.path} pays for {counted(planned, 'round')} with "
                f"privacy.epsilon = {recipe.privacy.epsilon:g}, so it cannot become a run of "
                f"{recipe.rounds}; start a new one with another --out"
            )
        if recipe.rounds != planned and recipe.method.plans_by_round_count:
            raise UserError(
                f"the run in {self.path} was planned for {counted(planned, 'round')}, and its "
                "rounds depend on how many follow (a cosine schedule of the learning rate, or "
                f"SphereFed's last round), so it cannot become a run of {recipe.rounds}; start a "
                "new one with another --out"
            )


class FollowedFolder(RunFolder):
    """The folder of a run as its other processes see it: the first one writes and locks it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.history = UnwrittenHistory(path / "history.jsonl")

    def begin(self, recipe: Recipe, *, resume: bool) -> ExitStack:
        return ExitStack()

    def keep(self, recipe: Recipe, allocation: Allocation) -> None:
        pass


def _names_first(place: str) -> tuple[bool, str]:
    return not place.endswith(".name"), place


def _differences(one: Any, two: Any, place: str) -> list[str]:
    if isinstance(one, dict) and isinstance(two, dict):
        return [
            found
            for key in one.keys() | two.keys()
            for found in _differences(
                one.get(key, {} if isinstance(two.get(key), dict) else None),
                two.get(key, {} if isinstance(one.get(key), dict) else None),
                f"{place}.{key}" if place else key,
            )
        ]
    return [] if one == two else [place]


class History:
    """The file ``history.jsonl`` with one JSON record per round."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, record: dict[str, Any]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, allow_nan=False) + "\n")

    def make_durable(self) -> None:
        """Wait for the disk, so that a checkpoint always has its history after a power failure."""
        wait_for_disk(self._path)

    def read(self) -> list[dict[str, Any]]:
        """Return the records up to the first damaged line, e.g. one cut off by a killed process."""
        if not self._path.exists():
            return []
        text = self._path.read_text(encoding="utf-8", errors="replace")
        return parse_records(text, "round")

    def replace(self, records: Sequence[dict[str, Any]]) -> None:
        """Write these records in place of all: those that no checkpoint holds are repeated."""
        lines = [json.dumps(record) for record in records]
        write_bytes(self._path, "".join(line + "\n" for line in lines).encode())


class UnwrittenHistory(History):
    """The history of a run whose first process writes it."""

    def append(self, record: dict[str, Any]) -> None:
        pass

    def make_durable(self) -> None:
        pass

    def replace(self, records: Sequence[dict[str, Any]]) -> None:
        pass
