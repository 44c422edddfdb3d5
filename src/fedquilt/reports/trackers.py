"""Trackers: a run's settings, metrics and pictures in TensorBoard, MLflow or Weights & Biases.

They hold what the run folder holds already, so a resumed run writes what its tracker lacks, and
nothing twice. Their packages are imported on first use.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROJECT = "fedquilt"  # where the environment names no experiment or project
COUNTED = "bytes_up"  # a number of every round
RESULT = "result/"  # before the names of the result's numbers
RESULT_ROUND = f"{RESULT}round"  # in wandb: it tells only the last value of a number
MLFLOW_MOST = 1000  # metrics in one request
Numbers = Mapping[str, float]


@dataclass(frozen=True)
class Held:
    """What a tracker has of a run."""

    rounds: int = 0  # the last round whose numbers it has
    result_after: int = 0  # the last round after which it got a result


class Tracker(ABC):
    """One tracker's copy of one run."""

    package: str

    def __init__(self, path: Path, key: str | None) -> None:
        self.path = path  # the run folder
        self.key = key  # the run's name in the tracker; None before ``begin`` of a new run

    @abstractmethod
    def begin(self, settings: Mapping[str, Any]) -> Held:
        """Open the run, or create it with these settings; return what it has."""

    @abstractmethod
    def log(self, round_number: int, numbers: Numbers) -> None: ...

    @abstractmethod
    def add_picture(self, picture: Path, round_number: int) -> None: ...

    @abstractmethod
    def close(self, *, is_complete: bool) -> None: ...


class TensorBoard(Tracker):
    """Event files in the folder ``tensorboard`` of the run; a resumed run writes them anew."""

    package = "tensorboard"

    def begin(self, settings: Mapping[str, Any]) -> Held:
        from torch.utils.tensorboard import SummaryWriter

        folder = self.path / "tensorboard"
        for old in folder.glob("events.out.tfevents.*"):
            old.unlink()
        self._writer = SummaryWriter(str(folder))
        rows = "\n".join(f"| {name} | {value} |" for name, value in settings.items())
        self._writer.add_text("settings", f"| setting | value |\n|---|---|\n{rows}", 0)
        return Held()

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

    def begin(self, settings: Mapping[str, Any]) -> Held:
        from mlflow import MlflowClient

        self._client = MlflowClient()
        if self.key is not None:
            self._client.update_run(self.key, status="RUNNING")
            known = self._client.get_run(self.key).data.metrics
            result = next((name for name in known if name.startswith(RESULT)), None)
            return Held(self._last_step(COUNTED), self._last_step(result) if result else 0)
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        found = self._client.get_experiment_by_name(name)
        experiment = self._client.create_experiment(name) if found is None else found.experiment_id
        self.key = self._client.create_run(experiment, run_name=self.path.name).info.run_id
        for setting, value in settings.items():
            self._client.log_param(self.key, _plain_name(setting), value)
        return Held()

    def _last_step(self, name: str) -> int:
        logged = self._client.get_metric_history(self.key, name)
        return max((metric.step for metric in logged), default=0)

    def log(self, round_number: int, numbers: Numbers) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [Metric(_plain_name(k), v, now, round_number) for k, v in numbers.items()]
        for start in range(0, len(metrics), MLFLOW_MOST):
            self._client.log_batch(self.key, metrics=metrics[start : start + MLFLOW_MOST])

    def add_picture(self, picture: Path, round_number: int) -> None:
        self._client.log_artifact(self.key, str(picture), "pictures")

    def close(self, *, is_complete: bool) -> None:
        self._client.set_terminated(self.key, "FINISHED" if is_complete else "KILLED")


class WeightsAndBiases(Tracker):
    """A run of the project WANDB_PROJECT; WANDB_MODE=offline keeps it on this machine.

    Offline, a resumed run writes all rounds anew, in place of the folders that were not synced: a
    process that was killed lost what wandb had not written, and nobody can be asked how much.
    """

    package = "wandb"

    def begin(self, settings: Mapping[str, Any]) -> Held:
        import wandb

        before = sorted((self.path / "wandb").glob(f"offline-run-*-{self.key}"))
        is_synced = any(each for folder in before for each in folder.glob("*.synced"))
        if is_synced and wandb.setup().settings.mode == "offline":
            self.key = None  # what was synced stays; the whole run gets another name
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
        for folder in () if is_synced else before:
            shutil.rmtree(folder)
        summary = self._run.summary
        return Held(*(int(summary.get(name) or 0) for name in ("round", RESULT_ROUND)))

    def log(self, round_number: int, numbers: Numbers) -> None:
        is_result = any(name.startswith(RESULT) for name in numbers)
        also = {RESULT_ROUND: round_number} if is_result else {}
        self._run.log({"round": round_number, **numbers, **also})

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


def _plain_name(name: str) -> str:
    """A name that MLflow accepts."""
    return re.sub(r"[^\w\-. /]", "_", name)
