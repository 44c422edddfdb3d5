"""Trackers: a run's settings, metrics and pictures in TensorBoard, MLflow or Weights & Biases.

They hold what the run folder holds already: a tracker that fails stops nothing, and a resumed run
writes what its tracker lacks. Their packages are imported on first use.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any

from fedquilt.core.atomic_files import write_json
from fedquilt.core.errors import UserError, nearest
from fedquilt.recipes.recipe import Recipe
from fedquilt.runs.experiment import Observer
from fedquilt.runs.run_folder import RunFolder

log = logging.getLogger(__name__)

FILE = "tracking.json"  # in the run folder: the names that trackers gave to the run
PROJECT = "fedquilt"  # where the environment names no experiment or project
LEFT_OUT = ("round", "by_client")  # the step, and numbers by the thousand
Numbers = Mapping[str, float]


class Tracker(ABC):
    """One tracker's copy of one run."""

    package: str

    def __init__(self, path: Path, key: str | None) -> None:
        self.path = path  # the run folder
        self.key = key  # the run's name in the tracker; None before ``begin`` of a new run

    @abstractmethod
    def begin(self, settings: Mapping[str, Any]) -> int:
        """Open the run, or create it with these settings; return the last round it has."""

    @abstractmethod
    def log(self, round_number: int, numbers: Numbers) -> None: ...

    @abstractmethod
    def add_picture(self, picture: Path, round_number: int) -> None: ...

    @abstractmethod
    def close(self, *, is_complete: bool) -> None: ...


class TensorBoard(Tracker):
    """Event files in the folder ``tensorboard`` of the run; a resumed run writes them anew."""

    package = "tensorboard"

    def begin(self, settings: Mapping[str, Any]) -> int:
        from torch.utils.tensorboard import SummaryWriter

        folder = self.path / "tensorboard"
        for old in folder.glob("events.out.tfevents.*"):
            old.unlink()
        self._writer = SummaryWriter(str(folder))
        rows = "\n".join(f"| {name} | {value} |" for name, value in settings.items())
        self._writer.add_text("settings", f"| setting | value |\n|---|---|\n{rows}", 0)
        return 0

    def log(self, round_number: int, numbers: Numbers) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, round_number)
        self._writer.flush()

    def add_picture(self, picture: Path, round_number: int) -> None:
        import numpy as np
        from PIL import Image

        with Image.open(picture) as image:
            pixels = np.asarray(image.convert("RGB"))
        self._writer.add_image(picture.stem, pixels, round_number, dataformats="HWC")

    def close(self, *, is_complete: bool) -> None:
        self._writer.close()


class MLflow(Tracker):
    """A run of the experiment MLFLOW_EXPERIMENT_NAME, at MLFLOW_TRACKING_URI."""

    package = "mlflow"

    def begin(self, settings: Mapping[str, Any]) -> int:
        from mlflow import MlflowClient

        self._client = MlflowClient()
        if self.key is not None:
            self._client.update_run(self.key, status="RUNNING")
            logged = self._client.get_metric_history(self.key, "bytes_up")
            return max((metric.step for metric in logged), default=0)
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        found = self._client.get_experiment_by_name(name)
        experiment = self._client.create_experiment(name) if found is None else found.experiment_id
        self.key = self._client.create_run(experiment, run_name=self.path.name).info.run_id
        for setting, value in settings.items():
            self._client.log_param(self.key, _plain_name(setting), value)
        return 0

    def log(self, round_number: int, numbers: Numbers) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [Metric(_plain_name(k), v, now, round_number) for k, v in numbers.items()]
        self._client.log_batch(self.key, metrics=metrics)

    def add_picture(self, picture: Path, round_number: int) -> None:
        self._client.log_artifact(self.key, str(picture), "pictures")

    def close(self, *, is_complete: bool) -> None:
        self._client.set_terminated(self.key, "FINISHED" if is_complete else "KILLED")


class WeightsAndBiases(Tracker):
    """A run of the project WANDB_PROJECT; WANDB_MODE=offline keeps it on this machine."""

    package = "wandb"

    def begin(self, settings: Mapping[str, Any]) -> int:
        import wandb

        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            id=self.key,
            resume="allow",
            name=self.path.name,
            config=dict(settings),
            dir=str(self.path),
        )
        self.key = self._run.id
        self._run.define_metric("*", step_metric="round")
        return int(self._run.summary.get("round") or 0)

    def log(self, round_number: int, numbers: Numbers) -> None:
        self._run.log({"round": round_number, **numbers})

    def add_picture(self, picture: Path, round_number: int) -> None:
        import wandb

        self._run.log({f"pictures/{picture.stem}": wandb.Image(str(picture))})

    def close(self, *, is_complete: bool) -> None:
        self._run.finish(exit_code=0 if is_complete else 1)


TRACKERS: dict[str, type[Tracker]] = {
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
    "wandb": WeightsAndBiases,
}


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
        self._is_complete = False

    def __call__(self, event: str, facts: Mapping[str, Any]) -> None:
        if event == "begin":
            self._begin(facts["first_round"])
        elif event == "round":
            self._tell(lambda tracker: tracker.log(facts["round"], numbers_of(facts)))
        elif event == "end":
            self._is_complete = True
            final = numbers_of({"result": facts["metrics"]})
            self._tell(lambda tracker: tracker.log(facts["rounds"], final))

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
                known = tracker.begin(self._settings)
                for record in done[known:]:
                    tracker.log(record["round"], numbers_of(record))
            except Exception as error:
                raise UserError(
                    f"--track {name} could not begin ({_one_line(error)}); fix that and go on "
                    f"with --resume, with or without --track {name}"
                ) from error
            self._open[name] = tracker
            keys[name] = tracker.key
            write_json(self._folder.path / FILE, keys)

    def _keys(self) -> dict[str, str | None]:
        path = self._folder.path / FILE
        return dict(self._folder.read_json(path)) if path.exists() else {}

    def _tell(self, what: Callable[[Tracker], None]) -> None:
        """A tracker that fails is left out from then on; the run matters more."""
        for name, tracker in list(self._open.items()):
            try:
                what(tracker)
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


def _plain_name(name: str) -> str:
    """A name that MLflow accepts."""
    return re.sub(r"[^\w\-. /]", "_", name)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def together(*observers: Observer) -> Observer:
    """One observer that tells several."""

    def observe(event: str, facts: dict[str, Any]) -> None:
        for each in observers:
            each(event, facts)

    return observe
