"""SumJournal: what the server has to remember of secure sums before it goes on.

Two sums of a round over different sites differ by single sites' updates. So the journal keeps over
whom a sum is unmasked before any site is asked to help, and the sum before it is applied: a server
that is killed in between finds either the same sum again, or that the round cannot be counted.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from fedquilt.core.atomic_files import write_json
from fedquilt.core.errors import UserError
from fedquilt.runs.object_store import DamagedObject, ObjectStore
from fedquilt.runs.run_folder import RunFolder

SUMS_FILE, SUMS_FOLDER = "sums.json", "sums"  # in the run folder
KEPT = 3  # sums: a server falls back by at most two rounds
SURVEY = "survey"  # the subject whose sum is always kept


@dataclass(frozen=True)
class SumEntry:
    """One subject, such as "train 7"."""

    attempt: int = -1  # the last one that sites were asked for
    of: str = ""  # the hash of what was sent for it, when it was unmasked
    survivors: tuple[str, ...] = ()  # whom it is unmasked over, once that was asked for
    sums: str | None = None  # the key of the unmasked vector


class SumJournal:
    """The entries of one run by subject, on disk; in memory only without a folder."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._entries: dict[str, SumEntry] = {}
        self._vectors: dict[str, Tensor] = {}  # without a folder
        self.contributed: list[int] | None = None  # annotators of each class, as the survey told
        if folder is not None:
            self._store = ObjectStore(folder / SUMS_FOLDER)
            self._read(folder / SUMS_FILE)

    def entry(self, subject: str) -> SumEntry:
        return self._entries.get(subject, SumEntry())

    def next_attempt(self, subject: str) -> int:
        """Return an attempt number that no site has been asked for."""
        entry = self.entry(subject)
        self._keep(subject, replace(entry, attempt=entry.attempt + 1))
        return entry.attempt + 1

    def begin_unmasking(self, subject: str, of: str, survivors: tuple[str, ...]) -> None:
        """Note over whom a sum is unmasked, before any site is asked to help."""
        self._keep(subject, replace(self.entry(subject), of=of, survivors=survivors, sums=None))

    def keep_sum(self, subject: str, vector: Tensor) -> None:
        """Keep an unmasked sum before it is applied."""
        if self._folder is None:
            self._vectors[subject] = vector
            key = subject
        else:
            key = self._store.put({"sum": vector})
            self._store.make_durable({key})
        self._keep(subject, replace(self.entry(subject), sums=key))

    def keep_contributed(self, counts: list[int]) -> None:
        self.contributed = counts
        self._write()

    def sum_of(self, subject: str) -> Tensor:
        """Return the kept sum; raise UserError if it is damaged."""
        key = self.entry(subject).sums
        assert key is not None
        if self._folder is None:
            return self._vectors[key]
        try:
            vector: Tensor = self._store.get(key)["sum"]
        except DamagedObject as error:
            raise UserError(
                f"the sum of {subject!r} in {self._folder / SUMS_FOLDER} is damaged ({error}), and "
                "sites help to unmask a sum once; restore it from a backup of the run folder"
            ) from error
        return vector

    def _keep(self, subject: str, entry: SumEntry) -> None:
        self._entries[subject] = entry
        kept = [name for name, each in self._entries.items() if each.sums and name != SURVEY]
        for name in kept[:-KEPT]:
            self._entries[name] = replace(self._entries[name], sums=None)
        self._write()

    def _write(self) -> None:
        if self._folder is None:
            return
        entries = {name: asdict(each) for name, each in self._entries.items()}
        content = {"contributed": self.contributed, "sums": entries}
        write_json(self._folder / SUMS_FILE, content)
        self._store.keep_only({each.sums for each in self._entries.values() if each.sums})

    def _read(self, path: Path) -> None:
        if not path.exists():
            return
        found: Any = RunFolder(path.parent).read_json(path)
        try:
            self.contributed = found["contributed"]
            self._entries = {
                name: SumEntry(**each | {"survivors": tuple(each["survivors"])})
                for name, each in found["sums"].items()
            }
        except (KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"{path} is damaged ({error}): it says which sums sites have unmasked; restore it "
                "from a backup of the run folder"
            ) from error
