"""StatePacks: clients' states between rounds, packed into one file for each save.

A save costs what has changed since the last one, however many clients have a state. A pack holds
the states that were put between two saves, one after another, and ends with an index of them. A
checkpoint names its packs.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from fedquilt.core.atomic_files import wait_for_disk
from fedquilt.runs.object_store import EMPTY, DamagedObject, ObjectStore, packed, unpacked
from fedquilt.training.method import State

FOOTER = 8  # bytes at the end of a pack: the length of its index
LEAST_USED = 0.5  # of a pack's bytes; with fewer in use, these move and the file goes
OBJECTS = ""  # stands for the files of an earlier version, one for each state

Share: TypeAlias = Callable[[Any], list[Any]]  # plain data of this process -> of all processes


class Entry(NamedTuple):
    """Where a state lies; ``digest`` is its sha256, ``EMPTY`` for one without tensors."""

    pack: str
    offset: int
    length: int
    digest: str
    round_count: int  # after which the client had this state


@dataclass
class Pack:
    """A file of states and what of it is in use."""

    digest: str = ""  # of its index, once it has one
    size: int = 0
    used: int = 0
    clients: set[str] = field(default_factory=set)


class StatePacks:
    """The states of one process's clients, and of the others' since the last save.

    Args:
        folder: where the packs are; all processes of a run share it.
        objects: where an earlier version kept states.
        process: the number of this process, which alone writes its packs.
        share: how processes tell each other which states are new.
    """

    def __init__(
        self,
        folder: Path,
        objects: ObjectStore,
        *,
        process: int = 0,
        share: Share = lambda found: [found],
    ) -> None:
        self._folder, self._objects = folder, objects
        self._process, self._share = process, share
        self._start({}, {})

    def _start(self, packs: dict[str, Pack], entries: dict[str, Entry]) -> None:
        """Go on from these states; what was put since is dropped."""
        self._packs = packs
        self._entries: dict[str, Entry] = {}  # as of the last complete round
        self._in_round: dict[str, Entry] = {}  # of clients trained in the current round
        self._unsaved: set[str] = set()  # clients whose entry is in no index yet
        for client, entry in entries.items():
            self._place(client, entry)
        # Files that no checkpoint names may be there: their names are not used again.
        numbers = [_number(path.name) for path in self._folder.glob("states-*.pack")]
        self._number = 1 + max(numbers, default=0)
        self._open = ""  # the name of the pack that is being written

    def get(self, client: str) -> State:
        entry = self._in_round.get(client) or self._entries.get(client)
        state: State = {} if entry is None else unpacked(self._read(entry), entry.pack)
        return state

    def put(self, client: str, state: State) -> None:
        content = packed(state)
        before = self._in_round.get(client) or self._entries.get(client)
        digest = hashlib.sha256(content).hexdigest() if content else EMPTY
        if before is None and not content:
            return  # nothing is what a client without an entry has
        if before is None or digest != before.digest:
            self._in_round[client] = self._append(content, digest)

    def advance(self, round_count: int) -> None:
        """Count what was put as the states after this round, which is complete."""
        for client, entry in self._in_round.items():
            self._place(client, entry._replace(round_count=round_count))
        self._unsaved.update(self._in_round)
        self._in_round = {}

    def save(self) -> dict[str, str]:
        """Make the states of complete rounds durable; return the packs, by the digest of each."""
        new = {client: self._entries[client] for client in sorted(self._unsaved)}
        for process, theirs in enumerate(self._share(new)):
            if process != self._process:
                for client, entry in theirs.items():
                    self._place(client, Entry(*entry))
        self._move_from_sparse_packs()
        for process, closed in enumerate(self._share(self._close() if self._unsaved else {})):
            for name, digest in closed.items():
                self._pack(name).digest = digest
                if process != self._process:
                    self._pack(name).size = (self._folder / name).stat().st_size
        in_use = {entry.pack for entry in self._in_round.values()} | {self._open}
        self._packs = {n: pack for n, pack in self._packs.items() if pack.clients or n in in_use}
        return {name: pack.digest for name, pack in sorted(self._packs.items()) if pack.digest}

    def restore(self, packs: Mapping[str, str], in_objects: Mapping[str, str]) -> None:
        """Read the states of a checkpoint; raise DamagedObject if one is not as it was written.

        Args:
            packs: what :meth:`save` returned.
            in_objects: the key of each client's state in a checkpoint of an earlier version.
        """
        entries = {c: Entry(OBJECTS, 0, 0, key, 0) for c, key in in_objects.items()}
        for name, digest in packs.items():
            for client, fields in _read_index(self._folder / name, digest).items():
                entry = Entry(*fields)
                if client not in entries or entry.round_count >= entries[client].round_count:
                    entries[client] = entry
        for entry in entries.values():
            self._read(entry)
        found = {
            name: Pack(digest, (self._folder / name).stat().st_size)
            for name, digest in packs.items()
        }
        self._start(found, entries)

    def keep_only(self, names: set[str]) -> None:
        """Delete the packs that no checkpoint names."""
        for path in self._folder.glob("states-*.pack"):
            if path.name not in names | self._packs.keys():
                path.unlink(missing_ok=True)

    def _pack(self, name: str) -> Pack:
        return self._packs.setdefault(name, Pack())

    def _place(self, client: str, entry: Entry) -> None:
        before = self._entries.get(client)
        if before is not None:
            pack = self._pack(before.pack)
            pack.clients.discard(client)
            pack.used -= before.length
        pack = self._pack(entry.pack)
        pack.clients.add(client)
        pack.used += entry.length
        self._entries[client] = entry

    def _append(self, content: bytes, digest: str, round_count: int = 0) -> Entry:
        if not self._open:
            self._open = f"states-{self._number:06d}-{self._process}.pack"
        pack = self._pack(self._open)
        entry = Entry(self._open, pack.size, len(content), digest, round_count)
        with (self._folder / self._open).open("ab") as file:
            file.write(content)
        pack.size += len(content)
        return entry

    def _read(self, entry: Entry) -> bytes:
        if entry.digest == EMPTY:
            return b""
        if entry.pack == OBJECTS:
            return self._objects.read(entry.digest)
        try:
            with (self._folder / entry.pack).open("rb") as file:
                file.seek(entry.offset)
                content = file.read(entry.length)
        except OSError as error:
            raise DamagedObject(f"{entry.pack} cannot be read: {error}") from error
        if hashlib.sha256(content).hexdigest() != entry.digest:
            raise DamagedObject(f"{entry.pack} was cut short or altered")
        return content

    def _move_from_sparse_packs(self) -> None:
        """Copy what is left in packs that are mostly out of date, so that they can be deleted.

        On the whole this copies no more bytes than were written.
        """
        for name, pack in list(self._packs.items()):
            # The first process also moves what an earlier version or a lost process wrote.
            is_own = name != OBJECTS and _process(name) == self._process
            if name == self._open or not (is_own or self._process == 0):
                continue
            if name != OBJECTS and pack.used >= LEAST_USED * pack.size:
                continue
            for client in sorted(pack.clients):
                entry = self._entries[client]
                moved = self._append(self._read(entry), entry.digest, entry.round_count)
                self._place(client, moved)
                self._unsaved.add(client)

    def _close(self) -> dict[str, str]:
        """End the open pack with its index and wait for the disk; return its name and digest."""
        index = json.dumps({client: self._entries[client] for client in sorted(self._unsaved)})
        content = index.encode()
        self._append(content + len(content).to_bytes(FOOTER, "big"), "")
        name, self._open = self._open, ""
        wait_for_disk(self._folder / name)
        wait_for_disk(self._folder)
        self._unsaved, self._number = set(), self._number + 1
        return {name: hashlib.sha256(content).hexdigest()}


def _read_index(path: Path, digest: str) -> dict[str, list[Any]]:
    try:
        with path.open("rb") as file:
            end = file.seek(0, io.SEEK_END)
            file.seek(max(0, end - FOOTER))
            length = int.from_bytes(file.read(FOOTER), "big")
            file.seek(max(0, end - FOOTER - length))
            content = file.read(min(length, end))
    except OSError as error:
        raise DamagedObject(f"{path.name} cannot be read: {error}") from error
    if hashlib.sha256(content).hexdigest() != digest:
        raise DamagedObject(f"{path.name} was cut short or altered")
    index: dict[str, list[Any]] = json.loads(content)
    return index


def _number(name: str) -> int:
    return int(name[7:13])


def _process(name: str) -> int:
    return int(name[14:].removesuffix(".pack"))
