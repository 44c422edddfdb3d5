"""What the coordinator does with a running server: submit, look and fetch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedquilt.core.errors import UserError
from fedquilt.deploy.kit import COORDINATOR, Kit
from fedquilt.deploy.nvflare.seal import check_seal
from fedquilt.deploy.nvflare.session import Session
from fedquilt.deploy.nvflare.supervisor import Supervisor
from fedquilt.deploy.server.result import where_models_are
from fedquilt.deploy.server.status import status_of_study
from fedquilt.deploy.study import Study


def open_kit(folder: Path, study: Study) -> Kit:
    """The coordinator's kit, of exactly this study."""
    kit = Kit(folder.resolve())
    kit.require(COORDINATOR)
    check_seal(kit)
    if kit.study().hash != study.hash:
        raise UserError(
            f"{folder} was made for another study: classes, sites, network, method or rounds "
            "differ, and the sites have agreed to those; provision anew, or restore the study file"
        )
    return kit


def submit_study(
    study: Study, kit: Kit, *, resume: bool, out: Path | None, say: Callable[[str], None]
) -> None:
    if out is not None and out.exists():
        raise UserError(f"{out} is there already; give another --out")
    with Session(kit, study) as session:
        job = Supervisor(study, session, say).run(resume=resume)
        say(f"all {study.recipe.rounds} rounds are done")
        if out is not None:
            session.fetch(job, out)
            tell_of_run(out, say)


def tell_of_run(folder: Path, say: Callable[[str], None]) -> None:
    for line in (f"run folder: {folder}", *where_models_are(folder)):
        say(line)


def study_status(study: Study, kit: Kit) -> dict[str, Any]:
    """The running job's own words; where none speaks, what the server has on disk."""
    with Session(kit, study) as session:
        session.connect(study.rules.server_seconds)
        jobs = [str(each["job_id"]) for each in session.jobs()]
        told = session.tell(jobs[-1], "status") if jobs else None
        if not jobs:
            otherwise = "not submitted"
        elif session.has_ended(jobs[-1]):
            otherwise = "no job at the moment"
        else:
            otherwise = "a job is starting"
        # Asked last: rounds that a job ends meanwhile are on disk by then.
        facts = status_of_study(session.progress(), told, otherwise, session.connected_sites())
        return {**facts, "job": jobs[-1] if jobs else None}


def fetch_run(study: Study, kit: Kit, out: Path) -> Path:
    with Session(kit, study) as session:
        session.connect(study.rules.server_seconds)
        for each in reversed(session.jobs()):
            found = session.fetch(str(each["job_id"]), out)
            if found is not None:
                return found
    raise UserError(f"no job of {study.name} on this server has come to the study's end")
