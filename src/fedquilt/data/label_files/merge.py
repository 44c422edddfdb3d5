"""Gathers label columns into the classes of the study, as ``label_names`` says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedquilt.data.label_files.names import LabelNames
from fedquilt.data.label_files.values import BLANK, NEGATIVE, POSITIVE, UNCERTAIN, Codes
from fedquilt.data.problems import Kind, Problems

CONFLICT = Kind(
    "label-conflict",
    "rows in which two columns of one class disagree",
    "mend one of the cells, or leave one of the columns out of the label-name file",
)
UNTRANSLATED = Kind(
    "untranslated-column",
    "label cells of a site that gives their column no name",
    "translate the column for this site too, or under [labels] for all, or blank the cells",
)


@dataclass
class ClassCodes:
    """The cells gathered so far, per class."""

    lines: Sequence[int]
    problems: Problems
    classes: dict[str, Codes] = field(default_factory=dict)

    def open(self, name: str) -> Codes:
        if name not in self.classes:
            self.classes[name] = np.full(len(self.lines), BLANK, dtype=np.int8)
        return self.classes[name]

    def add(self, name: str, column: str, cells: Codes, rows: NDArray[np.bool_]) -> None:
        """Write a column's cells into class ``name`` at ``rows``; 1 and 0 outweigh uncertain."""
        held = self.open(name)
        written = rows & np.isin(cells, (POSITIVE, NEGATIVE))
        clash = written & np.isin(held, (POSITIVE, NEGATIVE)) & (held != cells)
        for row in np.flatnonzero(clash).tolist():
            where = f"line {self.lines[row]}: column {column!r} against another of class {name!r}"
            self.problems.add(CONFLICT, where)
        held[written] = cells[written]
        held[rows & (cells == UNCERTAIN) & (held == BLANK)] = UNCERTAIN


def merge_columns(
    columns: Sequence[tuple[str, Codes]],
    sites: Sequence[str] | None,
    names: LabelNames,
    classes: Sequence[str] | None,
    into: ClassCodes,
) -> None:
    """Send each column's cells to the class that the cell's site means by the column."""
    for name in classes or ():
        into.open(name)
    site_of_row = np.asarray([""] * len(into.lines) if sites is None else sites)
    study_names = names.classes().union(classes or (), names.everywhere)
    for column, cells in columns:
        rest = np.ones(len(cells), dtype=bool)
        for site, table in names.by_site.items():
            if column in table:
                here = site_of_row == site
                into.add(table[column], column, cells, here)
                rest &= ~here
        if rest.all() or column in study_names:
            into.add(names.everywhere.get(column, column), column, cells, rest)
            continue
        for row in np.flatnonzero(rest & (cells != BLANK)).tolist():
            site = str(site_of_row[row])
            where = f"line {into.lines[row]}, column {column!r}, site {site!r}"
            into.problems.add(UNTRANSLATED, where)
