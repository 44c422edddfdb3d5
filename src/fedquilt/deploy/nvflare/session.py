"""Session: the coordinator's line to the server, which may break and is then opened anew."""

from __future__ import annotations

import contextlib
import io
import logging
import shutil
import time
from pathlib import Path
from typing import Any

from nvflare.fuel.flare_api.api_spec import (
    InternalError,
    InvalidTarget,
    JobNotFound,
    NoClientsAvailable,
    NoConnection,
    NoReply,
)
from nvflare.fuel.flare_api.flare_api import Session as FlareSession
from nvflare.fuel.flare_api.flare_api import new_secure_session
from nvflare.fuel.hci.proto import MetaKey, MetaStatusValue

from fedquilt.core.errors import UserError
from fedquilt.deploy.kit import Kit
from fedquilt.deploy.nvflare.job import RESULT, TOPIC
from fedquilt.deploy.nvflare.kit_files import PROGRESS
from fedquilt.deploy.nvflare.provision import coordinator_name
from fedquilt.deploy.nvflare.site import greet
from fedquilt.deploy.study import Study

log = logging.getLogger(__name__)
ENDED = ("FINISHED", "FAILED", "ABORTED")  # how FLARE's names of ended jobs begin


class ServerSilent(UserError):
    """The server does not answer, or not this coordinator."""


class Session:
    def __init__(self, kit: Kit, study: Study) -> None:
        self._kit, self._study = kit, study
        self._line: FlareSession | None = None
        kit.work.mkdir(exist_ok=True)
        (kit.folder / "transfer").mkdir(exist_ok=True)
        self._log = logging.FileHandler(kit.work / "coordinator.log")
        logging.getLogger().addHandler(self._log)  # FLARE's loggers have no common name

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *details: object) -> None:
        self._hang_up()
        logging.getLogger().removeHandler(self._log)
        self._log.close()

    def connect(self, seconds: float) -> None:
        """Raise ServerSilent if there is no answer in time."""
        self._hang_up()
        place = self._study.server
        deadline, error = time.monotonic() + seconds, None
        try:
            greet(self._kit, place, seconds)
        except UserError as refused:
            raise ServerSilent(str(refused)) from refused
        while True:
            try:
                with contextlib.redirect_stdout(io.StringIO()):
                    self._line = new_secure_session(
                        coordinator_name(self._study),
                        str(self._kit.folder.resolve()),
                        timeout=max(1.0, min(10.0, deadline - time.monotonic())),
                        auto_login_max_tries=2,
                    )
                return
            except Exception as found:
                error = found
            if time.monotonic() > deadline:
                raise ServerSilent(
                    f"the server at {place.host}:{place.port} did not answer within {seconds:.0f} "
                    f"s ({type(error).__name__}: {error}); is it started, and is this kit of its "
                    "study?"
                )
            time.sleep(0.5)

    def connected_sites(self) -> set[str]:
        return {each.name for each in self._do("get_connected_client_list")}

    def submit(self, job: Path) -> str:
        return str(self._do("submit_job", str(job.resolve())))

    def could_join(self, site: str, job: str) -> bool:
        """Whether the site answers and has no part in the job: FLARE lets nobody in later.

        FLARE lists a dead site as connected until its heartbeat is missed; such a site does not
        answer, and a new job would gain nothing.
        """
        try:
            found: list[dict[str, Any]] = self._do("get_client_job_status", [site]) or []
        except (InvalidTarget, NoClientsAvailable, NoReply, InternalError, ServerSilent):
            return False  # the server may be waiting for the site longer than we for the server
        elsewhere = [
            each.get(MetaKey.STATUS) == MetaStatusValue.NO_JOBS
            or each.get(MetaKey.JOB_ID) not in (None, job)
            for each in found
        ]
        return bool(found) and all(elsewhere)

    def has_ended(self, job: str) -> bool:
        return str(self._do("get_job_status", job)).startswith(ENDED)

    def progress(self) -> dict[str, Any]:
        """What the server has on disk of the study, also when no job is running."""
        assert self._line is not None
        found: dict[str, Any] = self._line._get_dict_data(self._do("_do_command", PROGRESS))
        return found

    def tell(self, job: str, want: str) -> dict[str, Any] | None:
        """The controller's status, after telling it what is wanted; None if it does not answer."""
        assert self._line is not None
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                answer: dict[str, Any] = self._line.do_app_command(job, TOPIC, {"want": want})
        except NoConnection as error:
            raise ServerSilent(str(error)) from error
        except Exception as error:
            log.info("no answer from job %s: %s: %s", job, type(error).__name__, error)
            return None
        return answer

    def abort(self, job: str) -> None:
        with contextlib.suppress(JobNotFound, InternalError, ServerSilent):
            self._do("abort_job", job)

    def jobs(self) -> list[dict[str, Any]]:
        """This study's jobs, oldest first."""
        found: list[dict[str, Any]] = self._do("list_jobs") or []
        mine = [each for each in found if each.get("job_name") == self._study.name]
        return sorted(mine, key=lambda each: str(each.get("submit_time", "")))

    def fetch(self, job: str, out: Path) -> Path | None:
        """Move the job's run folder to ``out``; None if the study did not end in this job."""
        location = Path(self._do("download_job_result", job))
        found = [path for path in location.rglob(RESULT) if (path / "recipe.json").exists()]
        if found:
            out.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(found[0], out)
        shutil.rmtree(location)
        return out if found else None

    def _do(self, name: str, *arguments: Any) -> Any:
        if self._line is None:
            raise ServerSilent("there is no line to the server")
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                return getattr(self._line, name)(*arguments)
        except NoConnection as error:
            raise ServerSilent(f"the server does not answer: {error}") from error

    def _hang_up(self) -> None:
        if self._line is not None:
            with contextlib.suppress(Exception):
                self._line.close()
            self._line = None
