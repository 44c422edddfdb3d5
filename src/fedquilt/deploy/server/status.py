"""Status of a study: its round, who is present, and who is missing since when."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from fedquilt.deploy.study import Study
from fedquilt.runs.run_folder import RunFolder


def progress_on_disk(study: Study, run: Path) -> dict[str, Any]:
    folder = RunFolder(run)
    facts = progress_by(study, folder.history.read())
    return facts | {
        "outcome": "done" if folder.result.exists() else None,
        "is_begun": folder.recipe.exists(),
    }


def progress_by(study: Study, records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The facts of a status that follow from the history's records alone."""
    missing_since: dict[str, float] = {}
    for record in records:
        missing_since = since_when(missing_since, record)
    last = records[-1] if records else None
    return {
        "study": study.name,
        "rounds": study.recipe.rounds,
        "round": last["round"] if last else 0,
        "last": last,
        "missing": last["missing"] if last else {},
        "missing_since": missing_since,
        "bytes_down": sum(record["bytes_down"] for record in records),
        "bytes_up": sum(record["bytes_up"] for record in records),
    }


def since_when(before: dict[str, float], record: dict[str, Any]) -> dict[str, float]:
    """A site is missing since the end of the first of the rounds in a row without it."""
    return {name: before.get(name, record["ended"]) for name in record["missing"]}


class Outcome(Enum):
    DONE = "done"  # all rounds, and the result is written
    CUT = "cut"  # at the coordinator's wish, after a whole round
    TOO_FEW = "too few sites"  # the round can be had when they are back
    HALTED = "halted"  # something a person has to mend
    FAILED = "failed"  # anything else


class Status:
    """Of one job: written by its rounds, read by whoever asks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._facts: dict[str, Any] = {"round": 0, "outcome": None, "missing_since": {}}

    def begin(
        self, study: Study, present: Sequence[str], records: Sequence[dict[str, Any]] = ()
    ) -> None:
        """A job begins with these sites, where the rounds of earlier jobs have left the study."""
        now, before = time.time(), progress_by(study, records)
        absent = [name for name in study.site_names if name not in present]
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
        """A round's record, or a notice."""
        with self._lock:
            facts = self._facts
            if "notice" in record:
                facts["notices"] = [*facts["notices"], record["notice"]]
                if "round" in record:
                    facts["round"] = facts["began_after"] = record["round"]
                return
            facts["missing_since"] = since_when(facts["missing_since"], record)
            facts["missing"] = record["missing"]
            facts["bytes_down"] += record["bytes_down"]
            facts["bytes_up"] += record["bytes_up"]
            facts["round"], facts["last"] = record["round"], record

    def end(self, outcome: Outcome, why: str | None) -> None:
        with self._lock:
            self._facts |= {"outcome": outcome.value, "why": why}

    def to_dict(self) -> dict[str, Any]:
        with self._lock:
            return dict(self._facts)


def status_of_study(
    on_disk: dict[str, Any],
    told: dict[str, Any] | None,
    otherwise: str,
    connected: Collection[str],
) -> dict[str, Any]:
    """What a job tells once it has begun; before and after it, what the study has on disk.

    ``told`` is None where no job answers; ``otherwise`` says in words why none does.
    """
    facts = on_disk
    if told is not None and "in_job" in told:
        facts = told
    elif on_disk["outcome"] is None:
        facts = on_disk | {"outcome": otherwise}
    return {**facts, "connected": sorted(connected)}


def sentences(facts: dict[str, Any]) -> list[str]:
    """The status in words, for a terminal."""
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
    lines += [f"notice: {notice}" for notice in facts.get("notices", ())]
    if last:
        lines.append(f"training loss {last['loss']:.4f}, last round {last['seconds']:.1f} s")
        metrics = last.get("metrics") or {}
        shown = [f"{name} {value:.4f}" for name, value in metrics.items() if value is not None]
        lines += [f"metrics: {', '.join(shown)}"] if shown else []
    sent = [f"{facts[key]:,} bytes {word}" for key, word in _DIRECTIONS]
    return [*lines, f"in all rounds so far: {', '.join(sent)}"]


def round_sentence(facts: dict[str, Any]) -> str:
    """The last round in one line, for whoever watches."""
    last = facts["last"]
    missing = [f"{name} ({why})" for name, why in last["missing"].items()]
    return (
        f"round {facts['round']} of {facts['rounds']}: loss {last['loss']:.4f}, "
        f"{', '.join(last['cohort'])}; {last['seconds']:.1f} s"
        + (f"; missing: {', '.join(missing)}" if missing else "")
    )


_DIRECTIONS = (("bytes_down", "to the sites"), ("bytes_up", "from them"))
