"""Decisions about a running study: lines of the server's audit log, each with its reason.

The server's process writes them, also while no job runs; a job reads them before and after every
round. As lines of the audit log they are part of its chain of hashes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedquilt.core.errors import UserError
from fedquilt.core.shown_text import shown
from fedquilt.deploy.audit_chain import AUDIT_FILE, read_events
from fedquilt.deploy.audit_log import AuditLog
from fedquilt.deploy.protocol.lineage import MAX_REASON, Rollback
from fedquilt.deploy.study import Study
from fedquilt.runs.checkpoint import saved_rounds
from fedquilt.runs.run_folder import RunFolder

DECIDED = "decided"  # the event in the audit log
PAUSE, RESUME, STOP, ROLLBACK, EXCLUDE = "pause", "resume", "stop", "rollback", "exclude"
LEFT = "left"  # decided by a site for itself
BY_COORDINATOR = (PAUSE, RESUME, STOP, ROLLBACK, EXCLUDE)


@dataclass(frozen=True, kw_only=True)
class Decision:
    """One decision."""

    kind: str
    reason: str
    by: str  # the coordinator's login, or the site that left
    site: str | None = None
    to_round: int | None = None


class Decisions:
    """All decisions about the study in a run folder, in their order."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / AUDIT_FILE
        self._end = 0
        self._made: list[Decision] = []

    def made(self) -> list[Decision]:
        """Return all decisions, with those that were made since the last call."""
        events, self._end = read_events(self._log, self._end)
        self._made += [_decision(event) for event in events if event.get("event") == DECIDED]
        return self._made

    def record(self, decision: Decision) -> None:
        facts = {key: value for key, value in asdict(decision).items() if value is not None}
        AuditLog(self._log).record(DECIDED, **facts)

    def paused(self) -> str | None:
        """Return why the study is paused."""
        last = self._last(PAUSE, RESUME, STOP)
        return last.reason if last is not None and last.kind == PAUSE else None

    def stopped(self) -> str | None:
        """Return why the study was ended early; going back to an earlier round reopens it."""
        last = self._last(STOP, ROLLBACK)
        return last.reason if last is not None and last.kind == STOP else None

    def departed(self) -> dict[str, str]:
        """Return the sites that take no further part, and why."""
        return {
            each.site: f"{'excluded' if each.kind == EXCLUDE else 'left'}: {each.reason}"
            for each in self.made()
            if each.kind in (EXCLUDE, LEFT) and each.site is not None
        }

    def excluded(self) -> list[str]:
        return [each.site for each in self.made() if each.kind == EXCLUDE and each.site is not None]

    def rollbacks(self) -> list[Rollback]:
        return [
            Rollback(each.to_round, each.reason)
            for each in self.made()
            if each.kind == ROLLBACK and each.to_round is not None
        ]

    def facts(self) -> dict[str, Any]:
        """Return what the status shows of them."""
        return {
            "paused": self.paused(),
            "stopped": self.stopped(),
            "departed": self.departed(),
            "rollbacks": len(self.rollbacks()),
        }

    def _last(self, *kinds: str) -> Decision | None:
        found = [each for each in self.made() if each.kind in kinds]
        return found[-1] if found else None


def _decision(event: Mapping[str, Any]) -> Decision:
    names = ("kind", "reason", "by", "site", "to_round")
    return Decision(**{name: event[name] for name in names if name in event})


def decide(study: Study, folder: RunFolder, asked: Mapping[str, Any], by: str) -> Decision:
    """Record what the coordinator asks for; raise UserError if it cannot be done."""
    kind, reason = asked.get("kind"), asked.get("reason")
    if kind not in BY_COORDINATOR:
        raise UserError(f"{shown(kind, limit=40)!r} is not a decision that a coordinator can make")
    if not isinstance(reason, str) or not 1 <= len(reason.strip()) <= MAX_REASON:
        raise UserError(f"a decision needs a reason of at most {MAX_REASON} characters")
    decisions = Decisions(folder.path)
    site, to_round = asked.get("site"), asked.get("to_round")
    match kind:
        case "exclude":
            _check_site(study, decisions, site)
        case "rollback":
            _check_rollback(study, folder, to_round)
        case "pause" | "stop":
            _check_running(study, folder, decisions, kind)
        case "resume" if decisions.paused() is None:
            raise UserError(
                f"{study.name} is not paused; `fedquilt deploy submit --resume` watches it again, "
                "and rolling back reopens a study that was stopped or is done"
            )
    decision = Decision(
        kind=kind,
        reason=reason.strip(),
        by=by,
        site=site if kind == EXCLUDE else None,
        to_round=to_round if kind == ROLLBACK else None,
    )
    decisions.record(decision)
    return decision


def _check_site(study: Study, decisions: Decisions, site: object) -> None:
    name = study.site(str(site)).name
    departed = decisions.departed()
    if name in departed:
        raise UserError(f"{name} takes no part any more ({departed[name]})")


def _check_running(study: Study, folder: RunFolder, decisions: Decisions, kind: str) -> None:
    if folder.result.exists():
        raise UserError(f"{study.name} is done; `fedquilt deploy fetch` fetches its result")
    if (why := decisions.stopped()) is not None:
        raise UserError(f"{study.name} was stopped already: {why}")
    if kind == PAUSE and (why := decisions.paused()) is not None:
        raise UserError(f"{study.name} is paused already: {why}")


def _check_rollback(study: Study, folder: RunFolder, to_round: object) -> None:
    if study.is_secure:
        raise UserError(
            "a study with secure sums cannot go back: its sites unmask the sum of a round once, "
            "because two sums of one round would show single sites' updates"
        )
    saved = saved_rounds(folder.checkpoints)
    if type(to_round) is not int or to_round not in saved[:-1]:
        earlier = ", ".join(map(str, saved[:-1])) or "none"
        raise UserError(
            f"{study.name} cannot go back to round {to_round}: it is after round "
            f"{saved[-1] if saved else 0}, and of earlier rounds the server has saved: {earlier} "
            "(rules.kept_rounds of the study says how many)"
        )
