"""Tables of attacks and privacy audits beside a run, which its report shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedquilt.core.atomic_files import write_json

AUDITS = "audits"  # a folder in the run folder
FINDINGS_FILE = "privacy_audit.json"
COLUMNS = ("audit", "from", "result", "if nothing leaks", "in words")
WORDS = (
    "Attacks on what clients would send in one more round, after this run's own protection. They "
    "show what is open; where they fail, another attack may not."
)


@dataclass(frozen=True)
class Finding:
    """One audit: an AUC, a share or a correlation; None where there is nothing to attack."""

    audit: str
    part: str
    value: float | None
    chance: float
    words: str

    def row(self) -> tuple[str, ...]:
        value = "not sent" if self.value is None else f"{self.value:.3f}"
        return (self.audit, self.part, value, f"{self.chance:g}", self.words)


def write_findings(folder: Path, found: Sequence[Finding]) -> None:
    """Write the table of a privacy audit for the run's report, and ``privacy_audit.json``."""
    rows = [each.row() for each in found]
    write_audit_table(folder, "privacy", "Privacy audit", WORDS, COLUMNS, rows)
    write_json(folder / FINDINGS_FILE, {"findings": [asdict(each) for each in found]})


def write_audit_table(
    folder: Path,
    name: str,
    title: str,
    words: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
) -> Path:
    """Write ``audits/NAME.json``; a table of that name is replaced."""
    table: dict[str, Any] = {
        "title": title,
        "words": words,
        "columns": list(columns),
        "rows": [list(row) for row in rows],
    }
    path = folder / AUDITS / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, table)
    return path
