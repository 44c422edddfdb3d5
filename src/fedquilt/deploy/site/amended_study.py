"""A site goes on with what it kept, under the agreement that it has signed."""

from __future__ import annotations

from pathlib import Path

from fedquilt.deploy.amendment import read_amendments
from fedquilt.deploy.audit_log import AuditLog
from fedquilt.deploy.kit import Kit
from fedquilt.deploy.site.states import study_folder


def take_over(kit: Kit, work: Path, audit_log: AuditLog) -> None:
    """Move what the site kept of the study before each amendment to its new agreement."""
    site = kit.role()
    for each in read_amendments(kit.amendments):
        before, after = (study_folder(work, study, site) for study in (each.before, each.after))
        if before.exists() and not after.exists():
            before.rename(after)
            audit_log.record(
                "amended",
                before=each.before.hash,
                study=each.after.hash,
                joining=list(each.joining),
                reason=each.reason,
            )
