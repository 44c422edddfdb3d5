"""The runs of a reproduced table as one CSV file with a row per run.

    python -m benchmarks.harness.table_runs pack FOLDER FILE.csv
    python -m benchmarks.harness.table_runs unpack FILE.csv FOLDER

FOLDER is the ``--out`` of ``fedquilt reproduce``. After ``unpack``, the same command rebuilds the
table from these runs without training, and trains only the runs that are missing. A row has all of
``result.json`` but the averages per client and by annotation: where every client annotates every
label, these repeat the metrics.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedquilt.core.atomic_files import write_json

LEFT_OUT = ("annotation_status", "spread_over_clients", "averages")
TEXT = ("method", "recipe_hash", "partition_hash", "undefined")


def pack(folder: Path, file: Path) -> None:
    results = sorted((folder / "cells").glob("*/result.json"))
    rows = [
        {"cell": path.parent.name, **dict(_flat(json.loads(path.read_text())))} for path in results
    ]
    columns = dict.fromkeys(column for row in rows for column in row)
    with file.open("w", newline="", encoding="utf-8") as opened:
        writer = csv.DictWriter(opened, [*columns], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def unpack(file: Path, folder: Path) -> None:
    """Write the ``result.json`` of every run into ``folder``."""
    with file.open(newline="", encoding="utf-8") as opened:
        rows = list(csv.DictReader(opened))
    for row in rows:
        target = folder / "cells" / row.pop("cell")
        target.mkdir(parents=True, exist_ok=True)
        write_json(target / "result.json", _nested(row))


def _flat(values: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    """Yield (path, text) of every value, paths joined by dots."""
    for name, value in values.items():
        if name in LEFT_OUT:
            continue
        if isinstance(value, dict):
            yield from _flat(value, f"{path}{name}.")
        else:
            yield path + name, value if isinstance(value, str) else json.dumps(value)


def _nested(row: Mapping[str, str]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for path, text in row.items():
        if not text:  # another run's: its own None is "null"
            continue
        *parents, name = path.split(".")
        place = result
        for parent in parents:
            place = place.setdefault(parent, {})
        is_text = name in TEXT or ("environment" in parents and not text.isdigit())
        place[name] = text if is_text else _value(text)
    return result


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:  # a word, such as which model is served
        return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=["pack", "unpack"])
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    options = parser.parse_args()
    (pack if options.action == "pack" else unpack)(options.source, options.target)


if __name__ == "__main__":
    main()
