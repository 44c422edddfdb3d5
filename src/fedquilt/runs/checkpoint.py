"""Checkpoints: save and restore a run atomically, with safetensors and JSON only."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedquilt.core.atomic_files import write_json
from fedquilt.core.errors import UserError
from fedquilt.core.parsed_text import parse_json
from fedquilt.core.processes import ONE_PROCESS, Processes, is_first
from fedquilt.core.tree import Weights
from fedquilt.runs.object_store import DamagedObject, ObjectStore
from fedquilt.runs.state_packs import StatePacks
from fedquilt.training.method import State

FORMAT = 2
READABLE = (1, FORMAT)  # 1 had a file for each client's state
KEPT = 2  # a damaged checkpoint then costs at most one interval
_NAME = re.compile(r"round-(\d{6})\.json")


@dataclass(frozen=True)
class Saved:
    """The state of a run after ``round_count`` rounds."""

    round_count: int
    server: State


class Checkpoints:
    """A folder of checkpoints, which also stores the clients' states between rounds.

    A checkpoint is a small JSON file with the hashes of the files that belong to it. It is
    written by a rename: a process killed before that resumes from the previous checkpoint. Of
    several processes each writes its clients' states, and the first one everything else.
    """

    def __init__(self, folder: Path, processes: Processes = ONE_PROCESS) -> None:
        self._folder = folder
        self.kept = KEPT
        self._processes = processes
        self._objects = ObjectStore(folder / "objects")
        self._states = StatePacks(
            folder, self._objects, process=processes.number, share=processes.share
        )
        self._best: dict[str, dict[str, Any]] = {}  # model -> round and key, as of the last round
        self._better: dict[str, dict[str, Any]] = {}  # found in the current round
        self._reached: Saved | None = None

    def get(self, client: str) -> State:
        return self._states.get(client)

    def put(self, client: str, state: State) -> None:
        self._states.put(client, state)

    def keep_best(self, model: str, round_count: int, weights: Weights) -> None:
        """Keep the weights of a model's best round so far, the current one."""
        if is_first(self._processes):
            self._better[model] = {"round": round_count, "weights": self._objects.put(weights)}

    def best(self, model: str) -> tuple[int, Weights] | None:
        """Return the best round of a model and its weights; None if none was kept."""
        kept = self._best.get(model)
        return None if kept is None else (kept["round"], self._objects.get(kept["weights"]))

    def advance(self, round_count: int, server: State) -> None:
        """Mark a round as complete; :meth:`save` writes the last complete round."""
        self._states.advance(round_count)
        self._best, self._better = self._best | self._better, {}
        self._reached = Saved(round_count, server)

    def save(self) -> None:
        """Write the last complete round; nothing of an interrupted round is saved."""
        if self._reached is None:
            return
        packs = self._states.save()
        if is_first(self._processes):
            self._write(self._reached, packs)
        self._processes.share(None)  # no process begins a file while others may be deleted

    def _write(self, reached: Saved, packs: Mapping[str, str]) -> None:
        server = self._objects.put(reached.server)
        self._objects.make_durable({server, *_weights_of(self._best)})
        content = {
            "format": FORMAT,
            "round_count": reached.round_count,
            "server": server,
            "packs": packs,
        } | ({"best": dict(sorted(self._best.items()))} if self._best else {})
        path = self._folder / f"round-{reached.round_count:06d}.json"
        write_json(path, content | {"digest": _digest(content)})
        paths = self._paths()
        first = paths.index(path)  # newer ones are damaged or will be repeated
        kept = paths[first : first + self.kept]
        for other in set(paths) - set(kept):
            other.unlink()
        named = [_referenced(each) for each in kept]
        in_use = {key for each in named for key in each.objects}
        self._objects.keep_only(in_use | _weights_of(self._better))
        self._states.keep_only({name for each in named for name in each.packs})

    def restore(self) -> tuple[Saved | None, list[str]]:
        """Return the newest valid checkpoint, and a message for each newer one that is not."""
        complaints = []
        for path in self._paths():
            try:
                content = _read(path)
                server = self._objects.get(content["server"])
                best = content.get("best", {})
                for key in _weights_of(best):
                    self._objects.get(key)
                self._states.restore(content.get("packs", {}), content.get("clients", {}))
            except DamagedObject as error:
                complaints.append(f"checkpoint {path.name} is not used: {error}")
                continue
            self._best, self._better = best, {}
            self._reached = Saved(content["round_count"], server)
            return self._reached, complaints
        return None, complaints

    def roll_back(self, to_round: int) -> None:
        """Delete the checkpoints after a round; raise UserError unless its own is kept."""
        if not (self._folder / f"round-{to_round:06d}.json").exists():
            raise UserError(f"the checkpoint after round {to_round} is no longer in {self._folder}")
        for path in self._paths():
            if _round_of(path) > to_round:
                path.unlink()

    def _paths(self) -> list[Path]:
        """Newest first."""
        return sorted(_checkpoints(self._folder), reverse=True)


def saved_rounds(folder: Path) -> list[int]:
    """Return the numbers of rounds done that a folder has checkpoints of, in order."""
    return sorted(map(_round_of, _checkpoints(folder))) if folder.exists() else []


def _checkpoints(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if _NAME.fullmatch(path.name)]


def _round_of(path: Path) -> int:
    return int(path.stem.removeprefix("round-"))


def _read(path: Path) -> dict[str, Any]:
    try:
        content = parse_json(path.read_text())
        digest = content.pop("digest")
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise DamagedObject(f"it cannot be read: {error}") from error
    if digest != _digest(content):
        raise DamagedObject("it was altered")
    if content["format"] not in READABLE:
        raise DamagedObject(
            f"format {content['format']} is not {FORMAT}, the format of this version"
        )
    return content  # type: ignore[no-any-return]


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _weights_of(best: Mapping[str, Mapping[str, Any]]) -> set[str]:
    return {kept["weights"] for kept in best.values()}


@dataclass(frozen=True)
class _Referenced:
    """The files of a checkpoint; none if it is damaged, since it cannot be used."""

    objects: frozenset[str] = frozenset()
    packs: frozenset[str] = frozenset()


def _referenced(path: Path) -> _Referenced:
    try:
        content = _read(path)
    except DamagedObject:
        return _Referenced()
    objects = {content["server"], *content.get("clients", {}).values()}
    objects |= _weights_of(content.get("best", {}))
    return _Referenced(frozenset(objects), frozenset(content.get("packs", ())))
