"""Results as CSV, each row with the command, date, hardware and versions it came from."""

from __future__ import annotations

import csv
import datetime
import platform
import sys
from pathlib import Path
from typing import Any

from fedquilt.environment import environment

RESULTS = Path(__file__).parent / "results"


def write_results(name: str, rows: list[dict[str, Any]], device: str = "cpu") -> Path:
    """Write ``benchmarks/results/<name>.csv`` and say where."""
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
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*rows[0], *made_with], lineterminator="\n")
        writer.writeheader()
        writer.writerows(row | made_with for row in rows)
    print(f"written: benchmarks/results/{name}.csv")
    return path


def _module() -> str:
    return f"benchmarks.{Path(sys.argv[0]).stem}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        return names[0]
    except (OSError, IndexError):
        return platform.machine()
