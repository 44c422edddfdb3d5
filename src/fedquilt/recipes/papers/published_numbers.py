"""Numbers published in papers, in percent, by row, column and metric.

``published_tables.csv`` holds them as the papers print them: names of rows, columns and metrics
included. FedLSM prints shares and FedLGT percents; the file has percents throughout, and counts in
FedLSM's Tables 5 and 6.
"""

from __future__ import annotations

import csv
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

FILE = Path(__file__).with_name("published_tables.csv")
AVERAGE = "average"  # over the columns; papers often print it as a column

Numbers = Mapping[str, Mapping[str, Mapping[str, float]]]  # row -> column -> metric -> number
Printed = dict[tuple[str, str, str], tuple[float, float | None]]  # -> value, standard deviation


@dataclass(frozen=True, kw_only=True)
class Reference:
    """Published numbers on one data set, in percent.

    On data other than the paper's, our columns correspond to the paper's by position.
    """

    label: str  # the paper's data set
    columns: tuple[str, ...]
    values: Numbers
    deviations: Numbers = field(default_factory=dict)  # standard deviations, where printed
    same_data: bool  # we use the paper's data set, so the numbers can be compared directly

    def value(self, row: str, column: str, metric: str) -> float | None:
        """Return a number, or None if there is none; compute an average that is not printed."""
        cells = self.values.get(row, {})
        if column != AVERAGE or AVERAGE in cells:
            return cells.get(column, {}).get(metric)
        if cells.keys() != set(self.columns):
            return None
        return statistics.fmean(cell[metric] for cell in cells.values() if metric in cell)

    def deviation(self, row: str, column: str, metric: str) -> float | None:
        return self.deviations.get(row, {}).get(column, {}).get(metric)


@lru_cache
def printed(paper: str, table: str, data: str) -> Printed:
    """Return a table as printed: (method, setting, metric) -> value and deviation."""
    with FILE.open(encoding="utf-8", newline="") as file:
        found = {
            (line["method"], line["setting"], line["metric"]): (
                float(line["value"]),
                float(line["deviation"]) if line["deviation"] else None,
            )
            for line in csv.DictReader(file)
            if (line["paper"], line["table"], line["data"]) == (paper, table, data)
        }
    if not found:
        raise LookupError(f"{FILE.name} has no numbers of {paper}, table {table}, on {data}")
    return found


def published(
    label: str,
    paper: str,
    table: str,
    data: str,
    *,
    rows: Mapping[str, str],
    columns: Mapping[str, str],
    metrics: Mapping[str, str],
    same_data: bool,
) -> Reference:
    """Look a table's numbers up; the mappings lead from our names to the printed ones.

    ``AVERAGE`` may be among the columns. Each printed name must occur in the table.
    """
    numbers = printed(paper, table, data)
    for names, place in ((rows, 0), (columns, 1), (metrics, 2)):
        known = {key[place] for key in numbers}
        if unknown := set(names.values()) - known:
            raise LookupError(f"{paper}, table {table}, {data}: {sorted(unknown)} not in {known}")

    def cells(which: int) -> dict[str, dict[str, dict[str, float]]]:
        return {
            row: {
                column: {
                    metric: number
                    for metric, its_metric in metrics.items()
                    if (entry := numbers.get((its_row, its_column, its_metric)))
                    and (number := entry[which]) is not None
                }
                for column, its_column in columns.items()
            }
            for row, its_row in rows.items()
        }

    return Reference(
        label=label,
        columns=tuple(column for column in columns if column != AVERAGE),
        values=cells(0),
        deviations=cells(1),
        same_data=same_data,
    )
