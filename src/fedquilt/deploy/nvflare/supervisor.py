"""Supervisor: runs a study as a sequence of FLARE jobs.

FLARE neither resumes a job after a crash nor lets a restarted site back into a running job. A new
job does both: it resumes from our checkpoint, with the sites that are connected then.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from fedquilt.core.errors import UserError
from fedquilt.core.wording import counted
from fedquilt.deploy.nvflare.job import write_job
from fedquilt.deploy.nvflare.session import ServerUnreachable, Session
from fedquilt.deploy.server.quorum import Quorum, TooFewSites
from fedquilt.deploy.server.status import Outcome, round_line
from fedquilt.deploy.study import Study

T = TypeVar("T")
PAUSED_POLL_SECONDS = 2.0
POLL_SECONDS = 1.0  # between requests for the job's status
STARTING_SECONDS = 120.0  # wait for a new job's first answer
SILENT_SECONDS = 20.0  # wait for an answer from a job that answered before
ENDING_SECONDS = 90.0  # wait for FLARE to close a job
MAX_FAILURES = 3  # jobs in a row without a finished round


@dataclass
class WatchedJob:
    """What is known about the current job."""

    job: str
    last_answer: float  # on the monotonic clock
    has_answered: bool = False
    is_cut: bool = False  # asked to stop after its current round


class Supervisor:
    """Submits jobs, watches them, and admits returning sites by starting a new job."""

    def __init__(self, study: Study, session: Session, say: Callable[[str], None]) -> None:
        self._study, self._session, self._say = study, session, say
        self._round = -1  # last round reported
        self._rollbacks = 0  # as of the last status
        self._notices: set[str] = set()  # reported so far

    def run(self, *, resume: bool) -> str:
        """Run the study to its end and return the last job; raise UserError if that fails."""
        self._session.connect(self._study.rules.server_seconds)
        if not resume:
            self._check_no_run_exists()
        failures = 0
        while True:
            self._wait_while_paused()
            before = self._round
            job = (self._running_job() if resume else None) or self._submit(resume)
            resume = True
            outcome, why = self._watch(job)
            is_whole = outcome in (Outcome.CUT, Outcome.PAUSED)
            failures = 0 if self._round > before or is_whole else failures + 1
            if outcome is Outcome.DONE:
                return job
            if outcome is Outcome.HALTED:
                raise UserError(why)
            if outcome is Outcome.PAUSED:
                continue
            self._say(f"the job ended: {outcome.value}{f', {why}' if why else ''}")
            if failures >= MAX_FAILURES:
                kind = TooFewSites if outcome is Outcome.TOO_FEW else UserError
                raise kind(f"{failures} jobs in a row finished no round; the last ended: {why}")

    def _wait_while_paused(self) -> None:
        """Wait for ``fedquilt deploy resume``, as long as it takes."""
        why = self._progress()["paused"]
        if why is not None:
            self._say(f"paused: {why}; waiting for `fedquilt deploy resume`")
        while why is not None:
            time.sleep(PAUSED_POLL_SECONDS)
            why = self._progress()["paused"]

    def _check_no_run_exists(self) -> None:
        """Raise UserError if the server has a run; a job would find that only after starting."""
        found = self._session.progress()
        if found["is_begun"]:
            raise UserError(
                f"the server already holds a run of {self._study.name}, {found['round']} of "
                f"{counted(found['rounds'], 'round')}; resume it with submit --resume, or give a "
                "new study another name"
            )

    def _submit(self, resume: bool) -> str:
        self._wait_for_sites()
        with tempfile.TemporaryDirectory() as folder:
            job = self._session.submit(write_job(self._study, Path(folder), resume=resume))
        self._say(f"job {job} submitted{', to resume' if resume else ''}")
        return job

    def _running_job(self) -> str | None:
        """Return a job that still runs after the coordinator that submitted it has ended."""
        for each in self._session.jobs()[-1:]:
            job = str(each["job_id"])
            status = self._session.command(job, "status")
            if status is not None and status["outcome"] is None:
                self._say(f"job {job} is running")
                return job
        return None

    def _wait_for_sites(self) -> None:
        """Wait for a quorum with an annotator of every class; raise TooFewSites after a time."""
        gone = self._progress()["departed"]
        names = [name for name in self._study.site_names if name not in gone]
        quorum = Quorum(self._study, self._study.site_names if self._study.is_secure else names)
        deadline = time.monotonic() + self._study.rules.start_seconds
        all_sites = set(names)
        enough_since = None
        while True:
            present = self._connected() & all_sites
            if quorum.is_enough(present):
                enough_since = enough_since or time.monotonic()
                late_seconds = min(self._study.rules.late_seconds, self._study.rules.start_seconds)
                if present == all_sites or time.monotonic() - enough_since > late_seconds:
                    return
            if time.monotonic() > deadline:
                waited = f"after {self._study.rules.start_seconds:.0f} s of waiting for sites"
                absent = gone | dict.fromkeys(all_sites - present, "not connected")
                quorum.require(present, absent, waited)
                return
            time.sleep(POLL_SECONDS / 2)

    def _watch(self, job: str) -> tuple[Outcome, str]:
        watched = WatchedJob(job, time.monotonic())
        while True:
            status = self._status_of(watched)
            if status is not None:
                self._report(status)
                if status["outcome"] is not None:
                    self._command(job, "farewell")
                    outcome = Outcome(status["outcome"])
                    if outcome is not Outcome.CUT:  # then the next job can start at once
                        self._wait_for_end(job)
                    return outcome, status.get("why") or ""
                if not watched.is_cut and self._site_is_back(job, status):
                    watched.is_cut = self._command(job, "cut")
            elif self._has_ended(job):
                return Outcome.FAILED, "FLARE ended the job; see the server's log"
            elif time.monotonic() - watched.last_answer > self._time_limit(watched):
                self._session.abort(job)
                return Outcome.FAILED, "the job no longer answered"
            time.sleep(POLL_SECONDS)

    def _command(self, job: str, want: str) -> bool:
        """Return whether the server got the command; if not, the next status reconnects."""
        try:
            self._session.command(job, want)
        except ServerUnreachable:
            return False
        return True

    def _time_limit(self, watched: WatchedJob) -> float:
        return SILENT_SECONDS if watched.has_answered else STARTING_SECONDS

    def _status_of(self, watched: WatchedJob) -> dict[str, Any] | None:
        try:
            status = self._session.command(watched.job, "status")
        except ServerUnreachable:
            self._say("the server does not answer; waiting for it")
            self._session.connect(self._study.rules.server_seconds)
            watched.has_answered = True  # a restarted server does not know the job: wait briefly
            return None
        if status is not None:
            watched.last_answer, watched.has_answered = time.monotonic(), True
        return status

    def _has_ended(self, job: str) -> bool:
        try:
            return self._session.has_ended(job)
        except ServerUnreachable:
            self._session.connect(self._study.rules.server_seconds)
            return False

    def _wait_for_end(self, job: str) -> None:
        deadline = time.monotonic() + ENDING_SECONDS
        while not self._has_ended(job) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS / 2)

    def _connected(self) -> set[str]:
        return self._again(self._session.connected_sites)

    def _progress(self) -> dict[str, Any]:
        return self._again(self._session.progress)

    def _again(self, ask: Callable[[], T]) -> T:
        """Return what the server answers, after a new connection if the old one is lost."""
        try:
            return ask()
        except ServerUnreachable:
            self._session.connect(self._study.rules.server_seconds)
            return ask()

    def _site_is_back(self, job: str, status: dict[str, Any]) -> bool:
        missing = status.get("missing_since", {})
        back = [
            name
            for name in sorted(self._connected() & set(missing) if missing else ())
            if self._session.could_join(name, job)
        ]
        if back:
            self._say(f"{', '.join(back)} is back: a new job begins after this round")
        return bool(back)

    def _report(self, status: dict[str, Any]) -> None:
        for notice in status.get("notices", ()):
            if notice not in self._notices:
                self._notices.add(notice)
                self._say(f"notice: {notice}")
        if (rollbacks := status.get("rollbacks", 0)) != self._rollbacks:
            self._rollbacks, self._round = rollbacks, -1
        after = self._round if self._round >= 0 else status.get("began_after", 0)
        for record in status.get("recent", ()):
            if record["round"] > after:
                self._round = record["round"]
                self._say(round_line(record, status["rounds"]))
