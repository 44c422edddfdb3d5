"""Status of a study: its round, its outcome, and which sites are missing since when.

A running job keeps a ``Status``; without a job, the status is read from the run folder.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fedquilt.deploy.server.decisions import Decisions
from fedquilt.deploy.study import Study
from fedquilt.runs.run_folder import RunFolder

DIRECTIONS = (("bytes_down", "to the sites"), ("bytes_up", "from them"))
RECENT = 20  # rounds that a status tells of
SHOWN = ("round", "loss", "cohort", "seconds", "missing")  # of each


class Outcome(Enum):
    """How a job ended; the values are sent to the coordinator."""

    DONE = "done"  # all rounds are done and the result is written
    PAUSED = "paused"  # by the coordinator, after a whole round
    CUT = "cut"  # stopped by the coordinator after a whole round, for a new job to resume
    TOO_FEW = "too few sites"  # no quorum; the round can be repeated when sites are back
    HALTED = "halted"  # an error that a person has to fix
    FAILED = "failed"  # any other error


class Status:
    """The status of one job: updated by its rounds, read by other threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._facts: dict[str, Any] = {"round": 0, "outcome": None, "missing_since": {}}

    def begin(
        self,
        study: Study,
        present: Sequence[str],
        records: Sequence[dict[str, Any]] = (),
        decided: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Start with the sites in the job, and the rounds and decisions of before."""
        now, before = time.time(), progress_from(study, records) | dict(decided)
        gone = decided.get("departed", {})
        absent = [name for name in study.site_names if name not in present and name not in gone]
        since = before["missing_since"]
        with self._lock:
            self._facts |= before | {
                "in_job": [name for name in study.site_names if name in present],
                "missing_since": {name: since.get(name, now) for name in absent},
                "missing": dict.fromkeys(absent, "not connected"),
                "began": now,
                "began_after": before["round"],
                "notices": [],
            }

    def note(self, record: dict[str, Any]) -> None:
        """Add a round's record or a notice."""
        with self._lock:
            facts = self._facts
            if "notice" in record:
                facts["notices"] = [*facts["notices"], record["notice"]]
                if "round" in record:
                    facts["round"] = facts["began_after"] = record["round"]
                    facts["recent"] = [r for r in facts["recent"] if r["round"] <= record["round"]]
                return
            facts["missing_since"] = _missing_since(facts["missing_since"], record)
            facts["missing"] = record["missing"]
            facts["bytes_down"] += record["bytes_down"]
            facts["bytes_up"] += record["bytes_up"]
            facts["round"], facts["last"] = record["round"], record
            facts["recent"] = _recent([*facts["recent"], record])

    def end(self, outcome: Outcome, why: str | None) -> None:
        with self._lock:
            self._facts |= {"outcome": outcome.value, "why": why}

    def to_dict(self) -> dict[str, Any]:
        with self._lock:
            return dict(self._facts)


def progress_on_disk(study: Study, run: Path) -> dict[str, Any]:
    """Return the status facts that the study's run folder holds."""
    folder = RunFolder(run)
    facts = progress_from(study, folder.history.read())
    return facts | {
        **Decisions(run).facts(),
        "outcome": "done" if folder.result.exists() else None,
        "is_begun": folder.recipe.exists(),
    }


def progress_from(study: Study, records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the status facts that follow from the history's records."""
    missing_since: dict[str, float] = {}
    for record in records:
        missing_since = _missing_since(missing_since, record)
    last = records[-1] if records else None
    return {
        "study": study.name,
        "rounds": study.recipe.rounds,
        "round": last["round"] if last else 0,
        "last": last,
        "recent": _recent(records),
        "missing": last["missing"] if last else {},
        "missing_since": missing_since,
        "bytes_down": sum(record["bytes_down"] for record in records),
        "bytes_up": sum(record["bytes_up"] for record in records),
    }


def _recent(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What is shown of the latest rounds: some may end between two requests for the status."""
    return [{key: record[key] for key in SHOWN} for record in records[-RECENT:]]


def _missing_since(before: dict[str, float], record: dict[str, Any]) -> dict[str, float]:
    """Return, per missing site, the end of the first of the latest rounds in a row without it."""
    return {name: before.get(name, record["ended"]) for name in record["missing"]}


def current_status(
    on_disk: dict[str, Any],
    job_status: dict[str, Any] | None,
    without_job: str,
    connected: Collection[str],
) -> dict[str, Any]:
    """Return the status of a study: the job's once it has begun, otherwise the one on disk.

    Args:
        on_disk: what ``progress_on_disk`` returned.
        job_status: what the latest job answered; None if it did not answer.
        without_job: the outcome to show if no job answers and the study is not done.
        connected: the sites that are connected now.
    """
    facts = on_disk
    if job_status is not None and "in_job" in job_status:
        decided = ("paused", "stopped", "departed", "rollbacks")
        facts = job_status | {key: on_disk[key] for key in decided if key in on_disk}
    elif on_disk["outcome"] is None:
        facts = on_disk | {"outcome": without_job}
    return {**facts, "connected": sorted(connected)}


def status_lines(facts: dict[str, Any]) -> list[str]:
    """Return the status as lines for a terminal."""
    outcome, last = facts["outcome"] or "running", facts["last"]
    if outcome == Outcome.CUT.value:
        outcome = "a new job begins"
    lines = [f"study {facts['study']}: {outcome}, round {facts['round']} of {facts['rounds']}"]
    if facts.get("why"):
        lines.append(f"because: {facts['why']}")
    if "in_job" in facts:
        lines.append(f"sites in the job: {', '.join(facts['in_job']) or 'none'}")
    if last:
        lines.append(f"in the last round: {', '.join(last['cohort'])}")
    lines.append(f"connected: {', '.join(facts['connected']) or 'none'}")
    for name, moment in facts["missing_since"].items():
        clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))
        back = "; connected again" if name in facts["connected"] else ""
        lines.append(f"missing: {name} since {clock} ({facts['missing'].get(name, '?')}{back})")
    lines += [f"takes no part: {name} ({why})" for name, why in facts.get("departed", {}).items()]
    if facts.get("paused"):
        lines.append(f"paused: {facts['paused']}; go on with `fedquilt deploy resume`")
    lines += [f"notice: {notice}" for notice in facts.get("notices", ())]
    if last:
        lines.append(f"training {_loss(last)}, last round {last['seconds']:.1f} s")
        metrics = last.get("metrics") or {}
        shown = [f"{name} {value:.4f}" for name, value in metrics.items() if value is not None]
        lines += [f"metrics: {', '.join(shown)}"] if shown else []
    sent = [f"{facts[key]:,} bytes {direction}" for key, direction in DIRECTIONS]
    return [*lines, f"in all rounds so far: {', '.join(sent)}"]


def _loss(record: dict[str, Any]) -> str:
    return "loss: none, skipped" if record["loss"] is None else f"loss {record['loss']:.4f}"


def round_line(record: dict[str, Any], rounds: int) -> str:
    """Return a round as one line for a terminal."""
    missing = [f"{name} ({why})" for name, why in record["missing"].items()]
    return (
        f"round {record['round']} of {rounds}: {_loss(record)}, "
        f"{', '.join(record['cohort'])}; {record['seconds']:.1f} s"
        + (f"; missing: {', '.join(missing)}" if missing else "")
    )
