"""A site leaves a study: it answers no more requests and tells the server why, once it is asked."""

from __future__ import annotations

from pathlib import Path

from fedquilt.core.atomic_files import write_bytes
from fedquilt.core.errors import UserError
from fedquilt.core.shown_text import shown
from fedquilt.deploy.audit_chain import AUDIT_FILE
from fedquilt.deploy.audit_log import AuditLog
from fedquilt.deploy.protocol.lineage import MAX_REASON
from fedquilt.deploy.site.answers import RefusedRequest
from fedquilt.deploy.site.settings import SiteSettings, open_work_folder
from fedquilt.deploy.site.states import study_folder
from fedquilt.deploy.study import Study

LEFT_FILE = "left.txt"  # beside the site's states; a running site reads it before every answer


class SiteHasLeft(RefusedRequest):
    """Raised for every request once the site has left; the server then asks it no more."""


def leave_study(study: Study, site: str, settings: SiteSettings, reason: str) -> Path:
    """Leave the study, also while the site is running; return the folder of what it kept."""
    reason = reason.strip()
    if not 1 <= len(reason) <= MAX_REASON:
        raise UserError(f"give a reason of 1 to {MAX_REASON} characters: the server will show it")
    work = open_work_folder(settings)
    folder = study_folder(work, study, site)
    left = why_left(folder)
    if left is not None:
        raise UserError(f"{site} has left {study.name} already: {left}")
    folder.mkdir(parents=True, exist_ok=True)
    AuditLog(work / AUDIT_FILE).record("left", study=study.hash, reason=reason)
    write_bytes(folder / LEFT_FILE, reason.encode())
    return folder


def why_left(folder: Path) -> str | None:
    """Return why the site has left the study of this folder; None if it has not."""
    try:
        return shown((folder / LEFT_FILE).read_bytes().decode("utf-8", errors="replace"))
    except FileNotFoundError:
        return None


def check_takes_part(folder: Path) -> None:
    if (why := why_left(folder)) is not None:
        raise SiteHasLeft(why)
