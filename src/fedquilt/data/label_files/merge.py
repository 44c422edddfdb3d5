"""Merge label columns into the classes of the study, according to the label-name file."""

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
    "fix one of the cells, or leave one of the columns out of the label-name file",
)
UNTRANSLATED = Kind(
    "untranslated-column",
    "label cells in a column that is translated for other sites only",
    "translate the column for this site too, or under [labels] for all sites, or clear the cells",
)


@dataclass
class ClassCodes:
    """Label codes per class, filled column by column."""

    lines: Sequence[int]
    problems: Problems
    classes: dict[str, Codes] = field(default_factory=dict)

    def open(self, name: str) -> Codes:
        """The codes of a class; blank for a new class."""
        if name not in self.classes:
            self.classes[name] = np.full(len(self.lines), BLANK, dtype=np.int8)
        return self.classes[name]

    def add(self, name: str, column: str, codes: Codes, rows: NDArray[np.bool_]) -> None:
        """Write a column's codes into class ``name`` at ``rows``; 1 and 0 override uncertain."""
        merged = self.open(name)
        is_definite = rows & np.isin(codes, (POSITIVE, NEGATIVE))
        is_conflict = is_definite & np.isin(merged, (POSITIVE, NEGATIVE)) & (merged != codes)
        for row in np.flatnonzero(is_conflict).tolist():
            where = f"line {self.lines[row]}: column {column!r} against another of class {name!r}"
            self.problems.add(CONFLICT, where)
        merged[is_definite] = codes[is_definite]
        merged[rows & (codes == UNCERTAIN) & (merged == BLANK)] = UNCERTAIN


def merge_columns(
    columns: Sequence[tuple[str, Codes]],
    sites: Sequence[str] | None,
    names: LabelNames,
    classes: Sequence[str] | None,
    into: ClassCodes,
) -> None:
    """Add each column's codes to ``into``, under the class that the row's site means by it."""
    for name in classes or ():
        into.open(name)
    site_of_row = np.asarray([""] * len(into.lines) if sites is None else sites)
    study_names = names.classes().union(classes or (), names.everywhere)
    for column, codes in columns:
        rest = np.ones(len(codes), dtype=bool)
        for site, table in names.by_site.items():
            if column in table:
                at_site = site_of_row == site
                into.add(table[column], column, codes, at_site)
                rest &= ~at_site
        if rest.all() or column in study_names:
            into.add(names.everywhere.get(column, column), column, codes, rest)
            continue
        for row in np.flatnonzero(rest & (codes != BLANK)).tolist():
            site = str(site_of_row[row])
            where = f"line {into.lines[row]}, column {column!r}, site {site!r}"
            into.problems.add(UNTRANSLATED, where)
