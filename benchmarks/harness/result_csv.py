"""Results as CSV files; each row has its date, command, hardware and versions."""

from __future__ import annotations

import csv
import datetime
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedquilt.runs.environment import environment

RESULTS = Path(__file__).parents[1] / "results"

Row = dict[str, Any]


def read_results(name: str) -> list[Row]:
    """Return the rows of ``benchmarks/results/<name>.csv``, none if there is no such file."""
    path = RESULTS / f"{name}.csv"
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write_results(
    name: str, rows: list[Row], device: str = "cpu", *, earlier: Sequence[Row] = ()
) -> list[Row]:
    """Write ``benchmarks/results/<name>.csv``; return the rows with what they were made with.

    Args:
        name: a folder of ``results`` and a file in it, such as ``speed/gpu``.
        earlier: rows of this function, perhaps of another machine, to keep before the new ones.
    """
    facts = made_with(device)
    written = [row | facts for row in rows]
    kept = [*earlier, *written]
    columns = dict.fromkeys(column for row in kept for column in row)
    path = RESULTS / f"{name}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*columns], lineterminator="\n")
        writer.writeheader()
        writer.writerows(kept)
    print(f"written: benchmarks/results/{name}.csv", flush=True)
    return written


def made_with(device: str) -> dict[str, str]:
    """Return what goes into every row: date, command, hardware and versions."""
    facts = environment(device)
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "command": " ".join(["python -m", _module(), *sys.argv[1:]]),
        "hardware": f"{facts['device']}, {_processor()}, {facts['cores']} cores, "
        f"{facts['threads']} threads",
        "versions": f"fedquilt {facts['fedquilt']}, torch {facts['torch']}, "
        f"timm {facts['timm']}, Python {facts['python']}",
    }


def _module() -> str:
    """The name that ``python -m`` was given."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec.name if spec is not None else Path(sys.argv[0]).stem


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        return names[0]
    except (OSError, IndexError):
        return platform.machine()
