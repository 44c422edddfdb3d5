"""Differences between the rows of the papers' ablation tables, with intervals over seeds.

    python -m benchmarks.studies.papers_differences

The ``*_runs.csv`` of ``papers_tables`` are read from ``results/tables``. Every row is compared with
every later row of its table by the seeds that both have; an interval is Student's over these seeds.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness.result_csv import RESULTS, Row, write_results
from benchmarks.harness.table_runs import unpack
from benchmarks.studies.papers_tables import PARTS, Part
from fedquilt.core.parsed_text import parse_json
from fedquilt.metrics.across_seeds import seed_difference
from fedquilt.recipes.papers import find_table
from fedquilt.recipes.papers.table import PublishedTable

NAME = "studies/ablations_differences"
Percents = dict[str, dict[int, dict[str, float]]]  # row -> seed -> metric -> percent


def percents(table: PublishedTable, folder: Path) -> Percents:
    """What the runs in ``folder`` reached."""
    found: Percents = {}
    for path in sorted((folder / "cells").glob("*/result.json")):
        result = parse_json(path.read_text(encoding="utf-8"))
        row = path.parent.name.partition("--")[0]
        read = {metric.name: metric.read(result) for metric in table.metrics}
        defined = {name: 100 * value for name, value in read.items() if value is not None}
        found.setdefault(row, {})[result["seed"]] = defined
    return found


def differences(table: PublishedTable, found: Percents) -> Iterator[Row]:
    """A row of results per pair of rows and metric."""
    rows = [row for row in table.rows if row.name in found]
    for (one, other), metric in itertools.product(itertools.combinations(rows, 2), table.metrics):
        ones, others = found[one.name], found[other.name]
        seeds = [
            seed
            for seed in sorted({*ones} & {*others})
            if metric.name in ones[seed] and metric.name in others[seed]
        ]
        if not seeds:
            continue
        by_seed = [ones[seed][metric.name] - others[seed][metric.name] for seed in seeds]
        interval = seed_difference(by_seed)
        yield {
            "table": table.name,
            "data": table.choice.name,
            "row": one.label,
            "minus": other.label,
            "metric": metric.name,
            "difference": f"{interval.mean:.2f}",
            "low": f"{interval.low:.2f}",
            "high": f"{interval.high:.2f}",
            "per_seed": " ".join(f"{each:.2f}" for each in by_seed),
            "seeds": " ".join(map(str, seeds)),
        }


def of_part(part: Part, folder: Path) -> list[Row]:
    runs = folder / f"{part.file}_runs.csv"
    if not runs.exists():
        return []
    table = find_table(part.table, part.data)
    with tempfile.TemporaryDirectory() as scratch:
        unpack(runs, Path(scratch))
        return [*differences(table, percents(table, Path(scratch)))]


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    folder = RESULTS / "tables"
    write_results(NAME, [row for part in PARTS for row in of_part(part, folder)])


if __name__ == "__main__":
    main()
