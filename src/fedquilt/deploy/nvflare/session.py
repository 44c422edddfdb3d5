"""Session: the coordinator's connection to the server; it can be reopened after a failure."""

from __future__ import annotations

import contextlib
import io
import json
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
from fedquilt.core.log_files import rotating_log
from fedquilt.deploy.kit import Kit
from fedquilt.deploy.nvflare.job import RESULT, TOPIC
from fedquilt.deploy.nvflare.provision import coordinator_name
from fedquilt.deploy.nvflare.site import check_connection
from fedquilt.deploy.nvflare.workspace import (
    DECIDE,
    PROGRESS,
    Workspace,
    write_coordinator_workspace,
)
from fedquilt.deploy.study import Study

log = logging.getLogger(__name__)
ENDED = ("FINISHED", "FAILED", "ABORTED")  # beginnings of FLARE's statuses of ended jobs


class ServerUnreachable(UserError):
    """Raised when the server does not answer this coordinator."""


class Session:
    """A connection with one study's server, as a context manager."""

    def __init__(self, kit: Kit, study: Study) -> None:
        self._kit, self._study = kit, study
        self._connection: FlareSession | None = None
        self._workspace = Workspace.of_kit(kit)
        kit.work.mkdir(exist_ok=True)
        self._log = rotating_log(kit.work / "coordinator.log")
        logging.getLogger().addHandler(self._log)  # FLARE's loggers have no common parent

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *details: object) -> None:
        self._close()
        logging.getLogger().removeHandler(self._log)
        self._log.close()

    def connect(self, seconds: float) -> None:
        """Open the connection; raise ServerUnreachable if the server does not answer in time."""
        self._close()
        address = self._study.server
        deadline, error = time.monotonic() + seconds, None
        login = coordinator_name(self._study)
        try:
            check_connection(self._kit, address, seconds)
        except UserError as refused:
            raise ServerUnreachable(str(refused)) from refused
        write_coordinator_workspace(self._workspace, self._kit, self._study, login)
        while True:
            try:
                with contextlib.redirect_stdout(io.StringIO()):
                    self._connection = new_secure_session(
                        login,
                        str(self._workspace.root),
                        timeout=max(1.0, min(10.0, deadline - time.monotonic())),
                        auto_login_max_tries=2,
                    )
                return
            except Exception as found:
                error = found
            if time.monotonic() > deadline:
                raise ServerUnreachable(
                    f"the server at {address.host}:{address.port} did not answer within "
                    f"{seconds:.0f} s ({type(error).__name__}: {error}); is it started, and does "
                    "this kit belong to its study?"
                )
            time.sleep(0.5)

    def connected_sites(self) -> set[str]:
        return {each.name for each in self._do("get_connected_client_list")}

    def submit(self, job: Path) -> str:
        return str(self._do("submit_job", str(job.resolve())))

    def could_join(self, site: str, job: str) -> bool:
        """Return whether the site answers and is not in this job, which admits no sites later.

        FLARE lists a lost site as connected until its heartbeat is missed. Such a site does not
        answer, so a new job would not include it.
        """
        try:
            found: list[dict[str, Any]] = self._do("get_client_job_status", [site]) or []
        except (InvalidTarget, NoClientsAvailable, NoReply, InternalError, ServerUnreachable):
            return False  # the server may wait longer for the site than we do for the server
        is_free = [
            each.get(MetaKey.STATUS) == MetaStatusValue.NO_JOBS
            or each.get(MetaKey.JOB_ID) not in (None, job)
            for each in found
        ]
        return bool(found) and all(is_free)

    def has_ended(self, job: str) -> bool:
        return str(self._do("get_job_status", job)).startswith(ENDED)

    def progress(self) -> dict[str, Any]:
        """Return the study's progress on the server's disk; works without a running job."""
        assert self._connection is not None
        found: dict[str, Any] = self._connection._get_dict_data(self._do("_do_command", PROGRESS))
        return found

    def decide(self, kind: str, reason: str, **facts: Any) -> None:
        """Have the server record a decision; raise UserError if it refuses it."""
        assert self._connection is not None
        asked = json.dumps({"kind": kind, "reason": reason, **facts}).encode().hex()
        reply = self._do("_do_command", f"{DECIDE} {asked}")
        answer: dict[str, Any] = self._connection._get_dict_data(reply)
        if "refused" in answer:
            raise UserError(str(answer["refused"]))

    def command(self, job: str, want: str) -> dict[str, Any] | None:
        """Send a command to the job; return the job's status, None if it does not answer."""
        assert self._connection is not None
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                answer: dict[str, Any] = self._connection.do_app_command(job, TOPIC, {"want": want})
        except NoConnection as error:
            raise ServerUnreachable(str(error)) from error
        except Exception as error:
            log.info("no answer from job %s: %s: %s", job, type(error).__name__, error)
            return None
        return answer

    def abort(self, job: str) -> None:
        with contextlib.suppress(JobNotFound, InternalError, ServerUnreachable):
            self._do("abort_job", job)

    def jobs(self) -> list[dict[str, Any]]:
        """Return this study's jobs, oldest first."""
        found: list[dict[str, Any]] = self._do("list_jobs") or []
        mine = [each for each in found if each.get("job_name") == self._study.name]
        return sorted(mine, key=lambda each: str(each.get("submit_time", "")))

    def fetch(self, job: str, out: Path) -> Path | None:
        """Fetch the job's run folder to ``out``; return None if the study did not end in it."""
        location = Path(self._do("download_job_result", job))
        found = [path for path in location.rglob(RESULT) if (path / "recipe.json").exists()]
        if found:
            out.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(found[0], out)
        shutil.rmtree(location)
        return out if found else None

    def _do(self, name: str, *arguments: Any) -> Any:
        if self._connection is None:
            raise ServerUnreachable("not connected to the server")
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                return getattr(self._connection, name)(*arguments)
        except NoConnection as error:
            raise ServerUnreachable(f"the server does not answer: {error}") from error

    def _close(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(Exception):
                self._connection.close()
            self._connection = None
