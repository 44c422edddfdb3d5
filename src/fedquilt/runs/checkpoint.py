"""Checkpoints: save and restore a run atomically, with safetensors and JSON only."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedquilt.core.atomic_files import write_json
from fedquilt.runs.object_store import DamagedObject, ObjectStore
from fedquilt.training.method import State

FORMAT = 1
KEPT = 2  # a damaged checkpoint then costs at most one interval
_NAME = re.compile(r"round-(\d{6})\.json")


@dataclass(frozen=True)
class Saved:
    """The state of a run after ``round_count`` rounds."""

    round_count: int
    server: State


class Checkpoints:
    """A folder of checkpoints, which also stores the clients' states between rounds.

    A checkpoint is a small JSON file with the hashes of the objects that belong to it. It is
    written by a rename: a process killed before that resumes from the previous checkpoint.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._objects = ObjectStore(folder / "objects")
        self._clients: dict[str, str] = {}  # as of the last complete round
        self._in_round: dict[str, str] = {}  # of clients trained in the current round
        self._reached: Saved | None = None

    def get(self, client: str) -> State:
        key = self._in_round.get(client) or self._clients.get(client)
        state: State = {} if key is None else self._objects.get(key)
        return state

    def put(self, client: str, state: State) -> None:
        self._in_round[client] = self._objects.put(state)

    def advance(self, round_count: int, server: State) -> None:
        """Mark a round as complete; :meth:`save` writes the last complete round."""
        self._clients |= self._in_round
        self._in_round = {}
        self._reached = Saved(round_count, server)

    def save(self) -> None:
        """Write the last complete round; nothing of an interrupted round is saved."""
        if self._reached is None:
            return
        content = {
            "format": FORMAT,
            "round_count": self._reached.round_count,
            "server": self._objects.put(self._reached.server),
            "clients": dict(sorted(self._clients.items())),
        }
        self._objects.make_durable(_keys(content))
        path = self._folder / f"round-{self._reached.round_count:06d}.json"
        write_json(path, content | {"digest": _digest(content)})
        paths = self._paths()
        kept = paths[paths.index(path) :][:KEPT]  # newer ones are damaged or will be repeated
        for other in set(paths) - set(kept):
            other.unlink()
        in_use = {*self._clients.values(), *self._in_round.values()}
        self._objects.keep_only(in_use.union(*map(_referenced, kept)))

    def restore(self) -> tuple[Saved | None, list[str]]:
        """Return the newest valid checkpoint, and a message for each newer one that is not."""
        complaints = []
        for path in self._paths():
            try:
                content = _read(path)
                server = self._objects.get(content["server"])
                for key in content["clients"].values():
                    self._objects.get(key)
            except DamagedObject as error:
                complaints.append(f"checkpoint {path.name} is not used: {error}")
                continue
            self._clients, self._in_round = dict(content["clients"]), {}
            self._reached = Saved(content["round_count"], server)
            return self._reached, complaints
        return None, complaints

    def _paths(self) -> list[Path]:
        """Newest first."""
        found = [path for path in self._folder.iterdir() if _NAME.fullmatch(path.name)]
        return sorted(found, reverse=True)


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
        digest = content.pop("digest")
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise DamagedObject(f"it cannot be read: {error}") from error
    if digest != _digest(content):
        raise DamagedObject("it was altered")
    if content["format"] != FORMAT:
        raise DamagedObject(
            f"format {content['format']} is not {FORMAT}, the format of this version"
        )
    return content  # type: ignore[no-any-return]


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _referenced(path: Path) -> set[str]:
    """Return the keys a checkpoint refers to; none if it is damaged, since it cannot be used."""
    try:
        return _keys(_read(path))
    except DamagedObject:
        return set()


def _keys(content: dict[str, Any]) -> set[str]:
    return {content["server"], *content["clients"].values()}
