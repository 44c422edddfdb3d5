"""Results as CSV, each row with the command, date, hardware and versions it came from."""

from __future__ import annotations

import csv
import datetime
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedquilt.runs.environment import environment

RESULTS = Path(__file__).parent / "results"


Row = dict[str, Any]


def write_results(
    name: str, rows: list[Row], device: str = "cpu", *, earlier: Sequence[Row] | None = None
) -> list[Row]:
    """Write ``benchmarks/results/<name>.csv`` and say where; the rows with what they came from.

    Args:
        earlier: rows as this function gave them, perhaps on another machine, to stand before.
    """
    facts = environment(device)
    made_with = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "command": " ".join(["python -m", _module(), *sys.argv[1:]]),
        "hardware": f"{facts['device']}, {_processor()}, {facts['cores']} cores, "
        f"{facts['threads']} threads",
        "versions": f"fedquilt {facts['fedquilt']}, torch {facts['torch']}, "
        f"timm {facts['timm']}, Python {facts['python']}",
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.csv"
    written = [row | made_with for row in rows]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*written[0]], lineterminator="\n")
        writer.writeheader()
        writer.writerows([*(earlier or ()), *written])
    if earlier is None:
        print(f"written: benchmarks/results/{name}.csv")
    return written


def _module() -> str:
    return f"benchmarks.{Path(sys.argv[0]).stem}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        return names[0]
    except (OSError, IndexError):
        return platform.machine()
