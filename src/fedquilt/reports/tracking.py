"""Tracking: tells the chosen trackers of a run, once, also after an interruption."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any

from fedquilt.core.atomic_files import write_json
from fedquilt.core.errors import UserError, nearest
from fedquilt.recipes.recipe import Recipe
from fedquilt.reports.trackers import TRACKERS, Tracker
from fedquilt.runs.experiment import Observer
from fedquilt.runs.run_folder import RunFolder

log = logging.getLogger(__name__)

FILE = "tracking.json"  # in the run folder: the names that trackers gave to the run
LEFT_OUT = ("round", "by_client")  # the step, and numbers by the thousand


class Tracking:
    """Observer for ``run`` that tells every tracker; without names it does nothing."""

    def __init__(self, names: Sequence[str], recipe: Recipe, out: str | Path) -> None:
        """Raise UserError for an unknown tracker, or one whose package is missing."""
        self._names = tuple(dict.fromkeys(names))
        for name in self._names:
            _check(name)
        self._settings = flat(recipe.to_dict()) | {"recipe_hash": recipe.hash}
        self._folder = RunFolder(Path(out))
        self._open: dict[str, Tracker] = {}
        self._has_result: dict[str, int] = {}  # after which round
        self._is_complete = False

    def __call__(self, event: str, facts: Mapping[str, Any]) -> None:
        if event == "begin":
            self._begin(facts["first_round"])
        elif event == "round":
            self._tell(lambda tracker: tracker.log(facts["round"], numbers_of(facts)))
        elif event == "end":
            self._is_complete = True
            final = numbers_of({"result": facts["metrics"]})
            lacking = [name for name in self._open if self._has_result[name] < facts["rounds"]]
            self._tell(lambda tracker: tracker.log(facts["rounds"], final), lacking)

    def add_pictures(self) -> None:
        """Add what was drawn of the finished run."""
        rounds = len(self._folder.history.read()) if self._open else 0
        drawn = sorted(self._folder.pictures.glob("*.png"))

        def add_all(tracker: Tracker) -> None:
            for picture in drawn:
                tracker.add_picture(picture, rounds)

        self._tell(add_all)

    def __enter__(self) -> Tracking:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._tell(lambda tracker: tracker.close(is_complete=self._is_complete))

    def _begin(self, first_round: int) -> None:
        """Open every tracker, and log the rounds before that it lacks."""
        keys = self._keys()
        done = self._folder.history.read()[:first_round] if self._names else []
        for name in self._names:
            tracker = TRACKERS[name](self._folder.path, keys.get(name))
            try:
                held = tracker.begin(self._settings)
                keys[name] = tracker.key
                write_json(self._folder.path / FILE, keys)
                for record in done[held.rounds :]:
                    tracker.log(record["round"], numbers_of(record))
            except Exception as error:
                raise UserError(
                    f"--track {name} could not begin ({_one_line(error)}); fix that and go on "
                    f"with --resume, with or without --track {name}"
                ) from error
            self._open[name] = tracker
            self._has_result[name] = held.result_after

    def _keys(self) -> dict[str, str | None]:
        path = self._folder.path / FILE
        return dict(self._folder.read_json(path)) if path.exists() else {}

    def _tell(self, what: Callable[[Tracker], None], names: Iterable[str] | None = None) -> None:
        """A tracker that fails is left out from then on; the run matters more."""
        for name in list(self._open if names is None else names):
            try:
                what(self._open[name])
            except Exception as error:  # of another program, about another machine
                del self._open[name]
                log.warning(
                    "%s failed and gets no more of this run (%s); the run goes on, and "
                    "--resume --track %s adds what it lacks",
                    *(name, _one_line(error), name),
                )


def numbers_of(record: Mapping[str, Any]) -> dict[str, float]:
    """The defined numbers of a record, by names such as ``metrics/macro_auc``."""
    found = {key: value for key, value in record.items() if key not in LEFT_OUT}
    return {
        name: float(value)
        for name, value in flat(found, "/").items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def flat(content: Mapping[str, Any], separator: str = ".", before: str = "") -> dict[str, Any]:
    """The leaves of nested tables by their whole name; lists are leaves."""
    leaves: dict[str, Any] = {}
    for key, value in content.items():
        name = f"{before}{key}"
        if isinstance(value, Mapping):
            nested = {each: value[each] for each in value if each not in LEFT_OUT}
            leaves |= flat(nested, separator, f"{name}{separator}")
        else:
            leaves[name] = json.dumps(value) if isinstance(value, list) else value
    return leaves


def _check(name: str) -> None:
    if name not in TRACKERS:
        raise UserError(f"there is no tracker {name!r}{nearest(name, TRACKERS)}")
    try:
        import_module(TRACKERS[name].package)
    except ImportError as error:
        raise UserError(
            f"--track {name} needs the package {TRACKERS[name].package} ({_one_line(error)}): "
            f"pip install 'fedquilt[{name}]'"
        ) from error


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def together(*observers: Observer) -> Observer:
    """One observer that tells several."""

    def observe(event: str, facts: dict[str, Any]) -> None:
        for each in observers:
            each(event, facts)

    return observe
