"""Status: how far a study is, who is there and who is missing since when."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from enum import Enum
from typing import Any

from fedquilt.deploy.study import Study


class Outcome(Enum):
    DONE = "done"  # all rounds, and the result is written
    CUT = "cut"  # at the coordinator's wish, after a whole round
    TOO_FEW = "too few sites"  # the round can be had when they are back
    HALTED = "halted"  # something a person has to mend
    FAILED = "failed"  # anything else


class Status:
    """Written by the rounds, read by whoever asks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._facts: dict[str, Any] = {"round": 0, "outcome": None, "missing_since": {}}

    def begin(self, study: Study, present: Sequence[str]) -> None:
        now = time.time()
        with self._lock:
            absent = [name for name in study.site_names if name not in present]
            self._facts |= {
                "study": study.name,
                "rounds": study.recipe.rounds,
                "in_job": [name for name in study.site_names if name in present],
                "missing_since": dict.fromkeys(absent, now),
                "missing": dict.fromkeys(absent, "not connected"),
                "began": now,
                "bytes_down": 0,
                "bytes_up": 0,
                "notices": [],
            }

    def note(self, record: dict[str, Any]) -> None:
        """A round's record, or a notice."""
        with self._lock:
            facts = self._facts
            if "notice" in record:
                facts["notices"] = [*facts["notices"], record["notice"]]
                facts["round"] = record.get("round", facts["round"])
                return
            since = facts["missing_since"]
            facts["missing"] = record["missing"]
            facts["missing_since"] = {
                name: since.get(name, record["ended"]) for name in record["missing"]
            }
            facts["bytes_down"] += record["bytes_down"]
            facts["bytes_up"] += record["bytes_up"]
            facts["round"], facts["last"] = record["round"], record

    def end(self, outcome: Outcome, why: str | None) -> None:
        with self._lock:
            self._facts |= {"outcome": outcome.value, "why": why}

    def to_dict(self) -> dict[str, Any]:
        with self._lock:
            return dict(self._facts)


def sentences(facts: dict[str, Any]) -> list[str]:
    """The status in words, for a terminal."""
    rounds = f"round {facts.get('round', 0)} of {facts.get('rounds', '?')}"
    lines = [f"study {facts.get('study', '?')}: {facts.get('outcome') or 'running'}, {rounds}"]
    if facts.get("why"):
        lines.append(f"because: {facts['why']}")
    lines.append(f"sites in the job: {', '.join(facts.get('in_job', [])) or 'none'}")
    for name, moment in facts.get("missing_since", {}).items():
        clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))
        lines.append(f"missing: {name} since {clock} ({facts.get('missing', {}).get(name, '?')})")
    last = facts.get("last")
    if last:
        lines.append(f"training loss {last['loss']:.4f}, last round {last['seconds']:.1f} s")
        metrics = last.get("metrics") or {}
        shown = [f"{name} {value:.4f}" for name, value in metrics.items() if value is not None]
        lines += [f"metrics: {', '.join(shown)}"] if shown else []
    sent = [f"{facts.get(key, 0):,} bytes {word}" for key, word in _DIRECTIONS]
    return [*lines, f"since this job began: {', '.join(sent)}"]


_DIRECTIONS = (("bytes_down", "to the sites"), ("bytes_up", "from them"))
