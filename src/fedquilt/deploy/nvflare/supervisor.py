"""Supervisor: cuts a study into FLARE jobs, so that it outlives whatever ends or leaves one.

FLARE neither goes on with a job after a crash nor lets a restarted site back into a running one.
A new job does both: it starts from our own checkpoint, with whoever is connected then.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedquilt.core.errors import UserError
from fedquilt.deploy.nvflare.job import write_job
from fedquilt.deploy.nvflare.session import ServerSilent, Session
from fedquilt.deploy.server.quorum import Quorum, TooFewSites
from fedquilt.deploy.server.status import Outcome, round_sentence
from fedquilt.deploy.study import Study

GLANCE = 1.0  # seconds between looks at the job
STARTING_SECONDS = 120.0  # for a job to say something for the first time
SILENT_SECONDS = 20.0  # without a word from a job that has spoken before
ENDING_SECONDS = 90.0  # for FLARE to close a job
ATTEMPTS = 3  # jobs in a row that bring no round


@dataclass
class JobSeen:
    """What is known of the current job."""

    job: str
    heard: float  # when it last said something
    has_spoken: bool = False
    is_cut: bool = False


class Supervisor:
    def __init__(self, study: Study, session: Session, say: Callable[[str], None]) -> None:
        self._study, self._session, self._say = study, session, say
        self._round = -1  # the last one that was reported
        self._noticed: set[str] = set()  # notices that were passed on

    def run(self, *, resume: bool) -> str:
        """Until all rounds are done; returns the last job. Raises when people have to act."""
        self._session.connect(self._study.rules.server_seconds)
        if not resume:
            self._refuse_to_overwrite()
        attempts = 0
        while True:
            before = self._round
            job = (self._running_job() if resume else None) or self._submitted(resume)
            resume = True
            outcome, why = self._watch(job)
            attempts = 0 if self._round > before or outcome is Outcome.CUT else attempts + 1
            if outcome is Outcome.DONE:
                return job
            if outcome is Outcome.HALTED:
                raise UserError(why)
            self._say(f"the job ended: {outcome.value}{f', {why}' if why else ''}")
            if attempts >= ATTEMPTS:
                kind = TooFewSites if outcome is Outcome.TOO_FEW else UserError
                raise kind(f"{attempts} jobs in a row brought no round; the last ended: {why}")

    def _refuse_to_overwrite(self) -> None:
        """A job would refuse it too, but only after everybody has started one."""
        found = self._session.progress()
        if found["is_begun"]:
            raise UserError(
                f"the server already holds a run of {self._study.name}, {found['round']} of "
                f"{found['rounds']} rounds; go on with it by submit --resume, or give a new study "
                "another name"
            )

    def _submitted(self, resume: bool) -> str:
        self._wait_for_sites()
        with tempfile.TemporaryDirectory() as folder:
            job = self._session.submit(write_job(self._study, Path(folder), resume=resume))
        self._say(f"job {job} submitted{', going on' if resume else ''}")
        return job

    def _running_job(self) -> str | None:
        """A job that goes on although whoever submitted it is gone."""
        for each in self._session.jobs()[-1:]:
            job = str(each["job_id"])
            status = self._session.tell(job, "status")
            if status is not None and status["outcome"] is None:
                self._say(f"job {job} is running")
                return job
        return None

    def _wait_for_sites(self) -> None:
        """Until a quorum and an annotator of every class are connected, for a bounded time."""
        attendance = Quorum(self._study, self._study.site_names)
        deadline = time.monotonic() + self._study.rules.start_seconds
        everybody = set(self._study.site_names)
        settled = None
        while True:
            present = self._connected() & everybody
            if attendance.is_enough(present):
                settled = settled or time.monotonic()
                patience = min(self._study.rules.late_seconds, self._study.rules.start_seconds)
                if present == everybody or time.monotonic() - settled > patience:
                    return
            if time.monotonic() > deadline:
                waited = f"after {self._study.rules.start_seconds:.0f} s of waiting for sites"
                absent = dict.fromkeys(everybody - present, "not connected")
                attendance.require(present, absent, waited)
                return
            time.sleep(GLANCE / 2)

    def _watch(self, job: str) -> tuple[Outcome, str]:
        seen = JobSeen(job, time.monotonic())
        while True:
            status = self._status_of(seen)
            if status is not None:
                self._report(status)
                if status["outcome"] is not None:
                    self._tell(job, "farewell")
                    outcome = Outcome(status["outcome"])
                    if outcome is not Outcome.CUT:  # its sites wait for the next one already
                        self._wait_for_end(job)
                    return outcome, status.get("why") or ""
                if not seen.is_cut and self._somebody_is_back(job, status):
                    seen.is_cut = self._tell(job, "cut")
            elif self._has_ended(job):
                return Outcome.FAILED, "FLARE ended the job; the server's log says why"
            elif time.monotonic() - seen.heard > self._patience(seen):
                self._session.abort(job)
                return Outcome.FAILED, "the job no longer answered"
            time.sleep(GLANCE)

    def _tell(self, job: str, want: str) -> bool:
        """Whether the server could be told; if not, the next look at the job reconnects."""
        try:
            self._session.tell(job, want)
        except ServerSilent:
            return False
        return True

    def _patience(self, seen: JobSeen) -> float:
        return SILENT_SECONDS if seen.has_spoken else STARTING_SECONDS

    def _status_of(self, seen: JobSeen) -> dict[str, Any] | None:
        try:
            status = self._session.tell(seen.job, "status")
        except ServerSilent:
            self._say("the server does not answer; waiting for it")
            self._session.connect(self._study.rules.server_seconds)
            seen.has_spoken = True  # a job that a restarted server does not know is lost
            return None
        if status is not None:
            seen.heard, seen.has_spoken = time.monotonic(), True
        return status

    def _has_ended(self, job: str) -> bool:
        try:
            return self._session.has_ended(job)
        except ServerSilent:
            self._session.connect(self._study.rules.server_seconds)
            return False

    def _wait_for_end(self, job: str) -> None:
        deadline = time.monotonic() + ENDING_SECONDS
        while not self._has_ended(job) and time.monotonic() < deadline:
            time.sleep(GLANCE / 2)

    def _connected(self) -> set[str]:
        try:
            return self._session.connected_sites()
        except ServerSilent:
            self._session.connect(self._study.rules.server_seconds)
            return self._session.connected_sites()

    def _somebody_is_back(self, job: str, status: dict[str, Any]) -> bool:
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
            if notice not in self._noticed:
                self._noticed.add(notice)
                self._say(f"notice: {notice}")
        if status["round"] <= max(self._round, status.get("began_after", 0)):
            return
        self._round = status["round"]
        self._say(round_sentence(status))
