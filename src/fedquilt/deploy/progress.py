"""How far a study is by its run folder, which outlives every job and every process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedquilt.deploy.study import Study
from fedquilt.run_folder import RunFolder


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
