"""The coordinator's commands to a running server: submit, status and fetch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedquilt.core.errors import UserError
from fedquilt.deploy.kit import COORDINATOR, Kit
from fedquilt.deploy.nvflare.seal import check_seal, expiry_note
from fedquilt.deploy.nvflare.session import Session
from fedquilt.deploy.nvflare.supervisor import Supervisor
from fedquilt.deploy.server.decisions import ROLLBACK
from fedquilt.deploy.server.result import missing_model_notes
from fedquilt.deploy.server.status import current_status
from fedquilt.deploy.study import Study


def open_kit(folder: Path, study: Study) -> Kit:
    """Return the coordinator's kit; raise UserError unless it was made for this study."""
    kit = Kit(folder.resolve())
    kit.require(COORDINATOR)
    check_seal(kit)
    if kit.study().hash != study.hash:
        raise UserError(
            f"{folder} was made for another study: classes, sites, model, method or rounds differ "
            "from what the sites agreed to; restore the study file, or provision new kits"
        )
    return kit


def decide_about(study: Study, kit: Kit, kind: str, reason: str, **facts: Any) -> dict[str, Any]:
    """Have the server record a decision and return how far the study is."""
    with Session(kit, study) as session:
        session.connect(study.rules.server_seconds)
        session.decide(kind, reason, **facts)
        return session.progress()


def submit_study(
    study: Study,
    kit: Kit,
    *,
    resume: bool,
    out: Path | None,
    say: Callable[[str], None],
    go_back: tuple[int, str] | None = None,
) -> None:
    """Run the study to its end; ``go_back`` names an earlier round, and the reason."""
    if out is not None and out.exists():
        raise UserError(f"{out} already exists; give another --out")
    if (note := expiry_note(kit)) is not None:
        say(note)
    with Session(kit, study) as session:
        if go_back is not None:
            session.connect(study.rules.server_seconds)
            session.decide(ROLLBACK, go_back[1], to_round=go_back[0])
        job = Supervisor(study, session, say).run(resume=resume or go_back is not None)
        progress = session.progress()
        if progress["stopped"] is not None:
            say(f"stopped after round {progress['round']}: {progress['stopped']}")
        else:
            say("all rounds are done")
        if out is not None:
            session.fetch(job, out)
            describe_run(out, say)


def describe_run(folder: Path, say: Callable[[str], None]) -> None:
    for line in (f"run folder: {folder}", *missing_model_notes(folder)):
        say(line)


def study_status(study: Study, kit: Kit) -> dict[str, Any]:
    """Return the status of the running job, or without one the status on the server's disk."""
    with Session(kit, study) as session:
        session.connect(study.rules.server_seconds)
        jobs = [str(each["job_id"]) for each in session.jobs()]
        job_status = session.command(jobs[-1], "status") if jobs else None
        if not jobs:
            without_job = "not submitted"
        elif session.has_ended(jobs[-1]):
            without_job = "no job at the moment"
        else:
            without_job = "a job is starting"
        # Read last: by now the disk has all rounds of a job that ended in the meantime.
        progress, connected = session.progress(), session.connected_sites()
        facts = current_status(progress, job_status, without_job, connected)
        return {**facts, "job": jobs[-1] if jobs else None}


def fetch_run(study: Study, kit: Kit, out: Path) -> Path:
    with Session(kit, study) as session:
        session.connect(study.rules.server_seconds)
        for each in reversed(session.jobs()):
            found = session.fetch(str(each["job_id"]), out)
            if found is not None:
                return found
    raise UserError(f"{study.name} has not finished on this server; see `fedquilt deploy status`")
