"""What a paper printed: numbers by row, column and metric, read from text laid out as there."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

AVERAGE = "average"  # over the columns; in papers often a column of its own

Numbers = dict[str, dict[str, dict[str, float]]]  # row -> column -> metric -> percent


@dataclass(frozen=True, kw_only=True)
class Reference:
    """Published numbers on one data set, in percent.

    Where ours are other data than the paper's, a column stands for the paper's by its position.
    """

    label: str  # the paper's data set
    columns: tuple[str, ...]
    values: Mapping[str, Mapping[str, Mapping[str, float]]]
    same_data: bool  # ours is the paper's data set, so that numbers can be laid side by side

    def value(self, row: str, column: str, metric: str) -> float | None:
        """None where there is no number; an average that is not printed is that of the columns."""
        cells = self.values.get(row, {})
        if column != AVERAGE or AVERAGE in cells:
            return cells.get(column, {}).get(metric)
        if cells.keys() != set(self.columns):
            return None
        return statistics.fmean(cell[metric] for cell in cells.values())


def read_reference(
    label: str,
    text: str,
    columns: Sequence[str],
    metrics: Sequence[str],
    *,
    same_data: bool,
    averages: str = "",
) -> Reference:
    """A line is a row: its name, then each column's numbers with ``/`` between metrics.

    ``averages`` has one such column, for rows of which we have nothing else.
    """
    values = _read(text, columns, metrics) | _read(averages, [AVERAGE], metrics)
    return Reference(label=label, columns=tuple(columns), values=values, same_data=same_data)


def _read(text: str, columns: Sequence[str], metrics: Sequence[str]) -> Numbers:
    values: Numbers = {}
    for line in text.strip().splitlines():
        row, *cells = line.split()
        values[row] = {
            column: dict(zip(metrics, map(float, cell.split("/")), strict=True))
            for column, cell in zip(columns, cells, strict=True)
        }
    return values
