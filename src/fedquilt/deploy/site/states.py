"""SiteStates: the client state of one site and study, on the site's disk."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

from fedquilt.core.atomic_files import write_json
from fedquilt.core.errors import UserError
from fedquilt.core.wording import counted
from fedquilt.deploy.study import Study
from fedquilt.runs.object_store import EMPTY, DamagedObject, ObjectStore
from fedquilt.training.method import State

KEPT = 10  # a study can go back by so many rounds
STATES = "states"  # in a site's work folder
_NAME = re.compile(r"after-(\d{6})\.json")


class DamagedState(UserError):
    """Raised when the state that a round has to start from is damaged."""


class SiteStates:
    """The states after the last few rounds that this site took part in.

    A server that was killed repeats its last round. The site then starts from the state it had
    before that round, so that the repeated round gives the same bits.
    """

    def __init__(self, folder: Path, kept: int = KEPT) -> None:
        self._folder, self._kept = folder, kept
        self._objects = ObjectStore(folder / "objects")

    def before(self, round_index: int) -> State:
        """Return the newest state before this round; empty if the site never took part.

        Raise DamagedState if it is damaged or no longer kept: with an older state, or none, the
        site would go on from another model than it has told the server.
        """
        found = self._newest_first()
        if len(found) >= self._kept and found[-1][0] > round_index:
            raise DamagedState(
                f"the site keeps its states after {counted(self._kept, 'round')}, the oldest after "
                f"round {found[-1][0]}; it cannot go back to before round {round_index + 1}"
            )
        for count, path in found:
            if count > round_index:
                continue
            try:
                state: State = self._objects.get(_key(path))
            except DamagedObject as error:
                raise DamagedState(
                    f"what the site kept after round {count} is damaged ({error}). Restore "
                    f"{self._folder} from a backup; or delete {path.name} in it, if the study "
                    "agrees that this site goes on as if it had missed that round"
                ) from error
            return state
        return {}

    def is_empty(self) -> bool:
        """Whether the site keeps nothing that its data could be compared with."""
        keys = {_key(path, otherwise="") for _, path in self._newest_first()}
        return keys <= {EMPTY}

    def keep(self, round_index: int, state: State) -> None:
        """Save the state after this round, and delete states of later rounds."""
        key = self._objects.put(state)
        self._objects.make_durable({key})
        path = self._folder / f"after-{round_index + 1:06d}.json"
        write_json(path, {"state": key, "digest": _digest(key)})
        kept = [each for count, each in self._newest_first() if count <= round_index + 1][
            : self._kept
        ]
        for _, other in self._newest_first():
            if other not in kept:
                other.unlink()
        self._objects.keep_only({_key(each, otherwise="") for each in kept})

    def _newest_first(self) -> list[tuple[int, Path]]:
        found = [(_NAME.fullmatch(path.name), path) for path in self._folder.iterdir()]
        return sorted(((int(name[1]), path) for name, path in found if name), reverse=True)


def study_folder(work: Path, study: Study, site: str) -> Path:
    """Return the folder for a site's states and model of exactly this study."""
    return work / STATES / study.name / site / study.hash[:16]


def all_studies(work: Path) -> list[Path]:
    """Return all such folders in the work folder."""
    return sorted(path for path in (work / STATES).glob("*/*/*") if path.is_dir())


def _key(path: Path, otherwise: str | None = None) -> str:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        key, digest = str(content["state"]), content["digest"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        if otherwise is not None:
            return otherwise
        raise DamagedObject(f"{path.name} cannot be read: {error}") from error
    if digest != _digest(key) and otherwise is None:
        raise DamagedObject(f"{path.name} was altered")
    return key


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
