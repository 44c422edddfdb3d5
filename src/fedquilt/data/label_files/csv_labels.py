"""Read a label file: one row per image, one column per class with 1, 0 or blank (not annotated).

The module ``values`` lists the accepted spellings. Other columns may hold the patient, the site and
the split. All problems of the file are collected, so that a user can fix them in one go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from unicodedata import normalize

import numpy as np
import torch
from torch import Tensor

from fedquilt.core.errors import nearest
from fedquilt.data.label_files.csv_rows import HEADER, CsvRows, meant, read_rows
from fedquilt.data.label_files.merge import ClassCodes, merge_columns
from fedquilt.data.label_files.names import LabelNames, check_names
from fedquilt.data.label_files.values import (
    BLANK,
    INVALID,
    Codes,
    Uncertain,
    describe_words,
    read_codes,
    resolve_uncertain,
)
from fedquilt.data.problems import KEPT_PLACES, Kind, Problems

BAD_VALUE = Kind(
    "bad-value",
    "label cells that are not understood",
    "expected 1 (present), 0 (absent), blank (not annotated) or -1 (uncertain); yes/no, true/false "
    "and na/nan are understood too; if this is no class, put the column in ignore_columns "
    "(--ignore-columns)",
)
UNKNOWN_COLUMN = Kind(
    "unknown-column",
    "columns that are neither a class nor used otherwise",
    "put them in ignore_columns (--ignore-columns), or name them as patient, site or split column, "
    "or add them to the classes",
    shown=KEPT_PLACES,
)
NO_CLASS = Kind(
    "no-class",
    "classes without a column or without an annotated image",
    "every class needs a column with at least one 1 or 0: fill it in, remove it from the classes "
    "(--classes), or put the column in ignore_columns (--ignore-columns)",
    shown=KEPT_PLACES,
)
BLANK_CELL = Kind(
    "blank-cell",
    "rows without an image, patient or site",
    "fill in the cell in every row, remove the row, or do not name the column",
)
DUPLICATE = Kind(
    "duplicate-image",
    "images that have more than one row",
    "keep one row per image: merge the rows or remove all but one",
)


@dataclass(frozen=True, kw_only=True)
class LabelColumns:
    """The role of each column of a label file."""

    image_column: str = "image"
    patient_column: str | None = None
    site_column: str | None = None
    split_column: str | None = None
    classes: tuple[str, ...] | None = None
    ignore_columns: tuple[str, ...] = ()
    uncertain: Uncertain = "ignore"
    names: LabelNames = field(default_factory=LabelNames)

    def composed(self) -> LabelColumns:
        """The same names with accents as in the rows that are read: composed, as in NFC."""

        def nfc(name: str) -> str:
            return normalize("NFC", name)

        given = self.classes
        return replace(
            self,
            image_column=nfc(self.image_column),
            patient_column=self.patient_column and nfc(self.patient_column),
            site_column=self.site_column and nfc(self.site_column),
            split_column=self.split_column and nfc(self.split_column),
            classes=None if given is None else tuple(map(nfc, given)),
            ignore_columns=tuple(map(nfc, self.ignore_columns)),
        )

    @property
    def roles(self) -> dict[str, str]:
        """Column names by role (image, patient, site, split), for the columns that were given."""
        roles = ("image", "patient", "site", "split")
        columns = (self.image_column, self.patient_column, self.site_column, self.split_column)
        return {role: column for role, column in zip(roles, columns) if column is not None}


@dataclass(frozen=True, kw_only=True)
class CsvLabels:
    """The content of a label file; all fields but ``classes`` and ``notices`` are per row."""

    ids: tuple[str, ...]  # image names, relative, with forward slashes
    lines: tuple[int, ...]  # line numbers in the file
    classes: tuple[str, ...]
    labels: Tensor  # (N, C) uint8, meaningful only where known
    known: Tensor  # (N, C) bool
    groups: tuple[str, ...] | None
    sites: tuple[str, ...] | None
    splits: tuple[str, ...] | None
    notices: tuple[str, ...]


def read_labels(path: Path, columns: LabelColumns, problems: Problems) -> CsvLabels | None:
    """Read ``path``; ``None`` if the problems leave no usable content."""
    columns = columns.composed()
    rows = read_rows(path, columns.image_column, problems)
    if rows is None or not rows.rows:
        return None
    label_columns = _label_columns(rows.header, columns, problems)
    roles = {r: tuple(rows.column(c)) for r, c in columns.roles.items() if c in rows.header}
    for role in ("image", "patient", "site"):
        _report_blanks(role, columns.roles.get(role), roles.get(role, ()), rows.lines, problems)
    ids = tuple(_normalised(name) for name in roles["image"])
    _report_duplicates(ids, rows.lines, problems)
    check_names(columns.names, label_columns, columns.classes, roles.get("site"), problems)
    cells, words = _read_cells(rows, label_columns, columns, problems)
    merged = ClassCodes(rows.lines, problems)  # filled by merge_columns
    merge_columns(cells, roles.get("site"), columns.names, columns.classes, merged)
    if not merged.classes:
        problems.add(NO_CLASS, "no column of the label file holds labels")
        return None
    labels, known = resolve_uncertain(
        np.stack(list(merged.classes.values()), axis=1), columns.uncertain
    )
    for name, column in zip(merged.classes, known.T):
        if not column.any():
            why = "" if name in rows.header else f"; no such column{nearest(name, rows.header)}"
            problems.add(NO_CLASS, f"class {name!r}: no image is annotated{why}")
    return CsvLabels(
        ids=ids,
        lines=tuple(rows.lines),
        classes=tuple(merged.classes),
        labels=torch.from_numpy(labels),
        known=torch.from_numpy(known),
        groups=roles.get("patient"),
        sites=roles.get("site"),
        splits=roles.get("split"),
        notices=(*rows.notices, *describe_words(words, columns.uncertain)),
    )


def _label_columns(
    header: Sequence[str], columns: LabelColumns, problems: Problems
) -> tuple[str, ...]:
    """The label columns; reports given names that are not in the header."""
    taken: dict[str, str] = {}
    for role, column in columns.roles.items():
        if column not in header:
            hint = meant(column, role, header)
            problems.add(HEADER, f"no column {column!r} for the {role}{hint}")
        if column in taken:
            problems.add(HEADER, f"column {column!r} is named for {taken[column]} and for {role}")
        taken[column] = role
    for column in columns.ignore_columns:
        if column not in header:
            problems.add(HEADER, f"no column {column!r} to ignore{nearest(column, header)}")
    rest = [name for name in header if name not in taken and name not in columns.ignore_columns]
    if columns.classes is None:
        return tuple(rest)
    wanted = columns.names.columns().union(columns.classes)
    for name in rest:
        if name not in wanted:
            hint = nearest(name, wanted.union(columns.names.classes()))
            problems.add(UNKNOWN_COLUMN, f"column {name!r} is not in the class list{hint}")
    return tuple(name for name in rest if name in wanted)


def _read_cells(
    rows: CsvRows, names: Sequence[str], columns: LabelColumns, problems: Problems
) -> tuple[list[tuple[str, Codes]], Counter[str]]:
    """The codes of each label column; a column without labels is reported once, by name."""
    declared = columns.names.columns().union(columns.classes or ())
    columns_found, words = [], Counter[str]()
    for name in names:
        index = rows.header.index(name)
        codes, found_words = read_codes(row[index] for row in rows.rows)
        invalid = np.flatnonzero(codes == INVALID)
        if name not in declared and 2 * len(invalid) > np.count_nonzero(codes != BLANK):
            example = rows.rows[invalid[0]][index].strip()[:20]
            problems.add(UNKNOWN_COLUMN, f"column {name!r} does not hold labels", private=example)
            continue
        for row in invalid:
            where = f"line {rows.lines[row]}, column {name!r}: {rows.rows[row][index][:20]!r}"
            problems.add(BAD_VALUE, where, scope=f"column {name!r}")
        columns_found.append((name, np.where(codes == INVALID, np.int8(BLANK), codes)))
        words += found_words
    return columns_found, words


def _report_blanks(
    role: str, column: str | None, cells: Sequence[str], lines: Sequence[int], problems: Problems
) -> None:
    for cell, line in zip(cells, lines):
        if not cell:
            problems.add(BLANK_CELL, f"line {line}, column {column!r} ({role}): blank")


def _report_duplicates(ids: Sequence[str], lines: Sequence[int], problems: Problems) -> None:
    first: dict[str, int] = {}
    for name, line in zip(ids, lines):
        if name and first.setdefault(name, line) != line:
            problems.add(DUPLICATE, f"line {line} repeats line {first[name]}", private=repr(name))


def _normalised(name: str) -> str:
    r"""``a/b.png`` for both ``.\a\b.png`` and ``a//b.png``."""
    return PurePosixPath(name.replace("\\", "/")).as_posix() if name else ""
