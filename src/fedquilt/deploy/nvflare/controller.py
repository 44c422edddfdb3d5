"""StudyController: the server's FLARE component; it runs the rounds and reports their status."""

from __future__ import annotations

import json
import logging
import shutil
import threading
import time
from pathlib import Path
from typing import Any

from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.signal import Signal

from fedquilt.core.errors import UserError
from fedquilt.deploy.amendment import read_amendments
from fedquilt.deploy.kit import Kit
from fedquilt.deploy.nvflare.channel import FlareChannel, JobEnded
from fedquilt.deploy.nvflare.job import RESULT, STUDY_FILE, TOPIC
from fedquilt.deploy.nvflare.workspace import kit_files
from fedquilt.deploy.server.decisions import Decisions
from fedquilt.deploy.server.quorum import TooFewSites
from fedquilt.deploy.server.run import ServerRun
from fedquilt.deploy.server.status import Outcome, Status
from fedquilt.deploy.study import study_from
from fedquilt.runs.run_folder import RunFolder

log = logging.getLogger(__name__)

FAREWELL_SECONDS = 15.0  # wait for the coordinator to read the outcome


class StudyController(Controller):  # type: ignore[misc]
    """Runs one job of a study."""

    def __init__(self, resume: bool = False) -> None:
        super().__init__()
        self.resume = resume
        self._status = Status()
        self._cut, self._farewell = threading.Event(), threading.Event()

    def start_controller(self, fl_ctx: FLContext) -> None:
        fl_ctx.get_engine().register_app_command(TOPIC, self._command)

    def stop_controller(self, fl_ctx: FLContext) -> None:
        pass

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        outcome, why = self._run(abort_signal, fl_ctx)
        self._status.end(outcome, why)
        ended = time.monotonic()
        while not self._farewell.wait(0.1) and not abort_signal.triggered:
            if time.monotonic() - ended > FAREWELL_SECONDS:
                break
        if outcome not in (Outcome.DONE, Outcome.CUT, Outcome.PAUSED):
            self.system_panic(why or outcome.value, fl_ctx)

    def _run(self, abort_signal: Signal, fl_ctx: FLContext) -> tuple[Outcome, str | None]:
        workspace, job = fl_ctx.get_workspace(), fl_ctx.get_job_id()
        try:
            config = Path(workspace.get_app_config_dir(job))
            study = study_from(json.loads((config / STUDY_FILE).read_text()))
            kit = Kit(kit_files(Path(workspace.get_root_dir()))["kit"])
            channel = FlareChannel(self, fl_ctx, abort_signal)
            if kit.study().hash != study.hash:
                other = "the job is of another agreement than the server's kit: use its study file"
                return Outcome.HALTED, other
            folder = kit.run_folder(study)
            records = RunFolder(folder).history.read() if self.resume else []
            self._status.begin(study, channel.sites(), records, Decisions(folder).facts())
            run = ServerRun(
                study,
                folder,
                channel,
                observe=self._status.note,
                should_stop=self._cut.is_set,
                cache=kit.work / "cache",
                amendments=read_amendments(kit.amendments),
            )
            if not run.run(resume=self.resume):
                why = run.decisions.paused()
                return (Outcome.CUT, None) if why is None else (Outcome.PAUSED, why)
            _copy_result(run.folder.path, Path(workspace.get_run_dir(job)) / RESULT)
        except JobEnded:
            return Outcome.FAILED, "FLARE ended the job"
        except TooFewSites as error:
            return Outcome.TOO_FEW, str(error)
        except UserError as error:
            return Outcome.HALTED, str(error)
        except Exception as error:
            log.exception("the study's controller failed")
            return Outcome.FAILED, f"{type(error).__name__}: {error}"
        return Outcome.DONE, None

    def process_result_of_unknown_task(self, *details: Any) -> None:
        """Ignore a late reply: its site is already recorded as missing."""

    def _command(self, topic: str, data: Any, fl_ctx: FLContext) -> dict[str, Any]:
        wanted = data.get("want") if isinstance(data, dict) else None
        if wanted == "cut":
            self._cut.set()
        elif wanted == "farewell":
            self._farewell.set()
        return self._status.to_dict()


def _copy_result(run: Path, result: Path) -> None:
    """Copy the run, without its checkpoints, to where the coordinator can fetch it."""
    shutil.copytree(run, result, ignore=shutil.ignore_patterns("checkpoints", ".claim", "cache"))
