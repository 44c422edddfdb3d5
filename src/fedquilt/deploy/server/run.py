"""ServerRun: the server's half of a study, in a run folder like a simulation's."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from fedquilt.core.atomic_files import write_json
from fedquilt.core.payload import Gather
from fedquilt.data.dataset import MultiLabelDataset
from fedquilt.deploy.audit_log import AuditLog
from fedquilt.deploy.protocol.channel import Channel
from fedquilt.deploy.server.remote_engine import RemoteEngine
from fedquilt.deploy.server.result import site_allocation, study_result
from fedquilt.deploy.study import Study
from fedquilt.metrics import Report, nan_to_none
from fedquilt.metrics.evaluation import evaluate
from fedquilt.privacy.sent_parts import example_data
from fedquilt.runs.assessment import GLOBAL
from fedquilt.runs.checkpoint import Checkpoints
from fedquilt.runs.run_folder import RunFolder
from fedquilt.runs.trained_models import save_models
from fedquilt.training.client import Workspace
from fedquilt.training.method import State
from fedquilt.training.rounds import Round, run_rounds, start_server

FOR_EVERYBODY = "annotators"  # study.toml says who annotates what: nothing is lost without it


def survey_notices(study: Study, trail: Path) -> list[str]:
    """By the server's audit trail, which outlives the job that asked; one sentence per site."""
    method = study.recipe.method
    asked = {**method.survey(example_data(study.task))}
    asked.pop(FOR_EVERYBODY, None)
    if not asked:
        return []
    answered, lost = _answered(trail), "its part is missing in the totals"
    if any(isinstance(part, Gather) for part in asked.values()):  # FedAwS: no row ever reaches it
        lost = "what the server makes of it for each site, this one never receives"
    return [
        f"{name} missed the survey before the first round, which is not repeated. What "
        f"{type(method).__name__} asks there ({', '.join(asked)}) stays unknown of {name} in this "
        f"study: {lost}; only a new study asks again"
        for name in study.site_names
        if name not in answered
    ]


def _answered(trail: Path) -> set[str]:
    found = set()
    for line in trail.read_text(encoding="utf-8").splitlines():
        try:
            event = json.loads(line)
        except json.JSONDecodeError:  # cut short by a crash
            continue
        if (event.get("event"), event.get("kind")) == ("received", "survey"):
            found.add(event["site"])
    return found


log = logging.getLogger(__name__)
TRAIL = "audit.jsonl"

Watch = Callable[[dict[str, Any]], None]


class ServerRun:
    """Rounds, history, checkpoints and the result; ``is_cut`` asks for an end after a round."""

    def __init__(
        self,
        study: Study,
        folder: Path,
        channel: Channel,
        *,
        watch: Watch = lambda record: None,
        is_cut: Callable[[], bool] = lambda: False,
        cache: Path | None = None,
    ) -> None:
        self.study, self.folder = study, RunFolder(folder)
        self.task = study.task
        self._channel, self._watch, self._is_cut = channel, watch, is_cut
        self._cache = folder / "cache" if cache is None else cache
        self._test: MultiLabelDataset | None = None
        self._workspace: Workspace | None = None

    def run(self, *, resume: bool) -> bool:
        """Go on to the last round and write the result; False if it was cut before."""
        recipe = self.study.recipe
        with self.folder.begin(recipe, resume=resume):
            self.folder.keep(recipe, site_allocation(self.study))
            self.checkpoints = Checkpoints(self.folder.checkpoints)
            trail = AuditLog(self.folder.path / TRAIL)
            self.engine = RemoteEngine(self.study, self.task, self._channel, trail)
            if self.study.evaluate_on_server:
                self._test = recipe.data.load(self._cache).test
                self._workspace = Workspace.of(self.task, torch.device("cpu"))
            server, first_round = self._restored()
            if not self._train(server, first_round):
                return False
            self._finish()
        return True

    def _restored(self) -> tuple[State, int]:
        saved, complaints = self.checkpoints.restore()
        for complaint in complaints:
            self._notice(complaint)
        if saved is None:
            server, first_round = start_server(self.study.recipe.method, self.task, self.engine), 0
            self.checkpoints.advance(0, server)
            self.checkpoints.save()  # a resumed study does not ask for the survey again
        else:
            server, first_round = saved.server, saved.round_count
            self._notice(f"going on after round {first_round}", round=first_round)
        for notice in survey_notices(self.study, self.folder.path / TRAIL):
            self._notice(notice)
        self.folder.history.cut_to(first_round)
        return server, first_round

    def _train(self, server: State, first_round: int) -> bool:
        recipe = self.study.recipe
        self._server = server
        rounds = run_rounds(
            recipe.method,
            self.task,
            self.engine,
            server,
            first_round=first_round,
            cohort_size=recipe.cohort_size,
        )
        if first_round < self.task.round_count and self._is_cut():
            return False
        for round_ in rounds:
            self._server = round_.server
            done = round_.index + 1
            is_last = done == self.task.round_count
            due = done % recipe.evaluation.every == 0 or is_last
            record = self._record(round_, self._assess() if due else None)
            self.folder.history.append(record)
            self.checkpoints.advance(done, round_.server)
            # Every round, whatever the recipe says: sites keep the states of a few rounds only.
            self.folder.history.make_durable()
            self.checkpoints.save()
            self._watch(record)
            if self._is_cut() and not is_last:
                return False
        return True

    def _assess(self) -> Report | None:
        weights = self.study.recipe.method.global_weights(self._server)
        if self._test is None or self._workspace is None or weights is None:
            return None
        settings, forward = self.study.recipe.evaluation, self._workspace.forward
        device = self._workspace.device
        return evaluate(forward, weights, self._test, self.task, settings, device)

    def _record(self, round_: Round, report: Report | None) -> dict[str, Any]:
        last = self.engine.last
        record: dict[str, Any] = {
            "round": round_.index + 1,
            "loss": round_.loss,
            "cohort": list(round_.cohort),
            "bytes_down": last.bytes_down,
            "bytes_up": last.bytes_up,
            "seconds": round_.seconds,
            "metrics": None,
            "missing": last.missing,
            "ended": time.time(),
        }
        if report is not None:
            record["metrics"] = nan_to_none(dict(report.averages))
            of_class = dict(zip(report.classes, report.per_class["auc"]))
            record["per_class_auc"] = nan_to_none(of_class)
        return record

    def _finish(self) -> None:
        method, recipe = self.study.recipe.method, self.study.recipe
        weights = method.global_weights(self._server)
        if weights is not None:
            save_models(self.folder, recipe, self.task, {GLOBAL: weights})
        # Before the result, which says that all is done: a study that is cut here tells them again.
        missed = self.engine.end(method.broadcast(self._server))
        for name, why in missed.items():
            self._notice(f"{name} was not told of the end ({why}): its model is an earlier round's")
        history = self.folder.history.read()
        write_json(self.folder.result, study_result(self.study, history, self._assess(), missed))

    def _notice(self, text: str, **facts: Any) -> None:
        log.warning("%s", text)
        self._watch({"notice": text, **facts})
