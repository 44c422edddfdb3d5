"""Which classes of a model a label file can judge: its columns may be some of them, or others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedquilt.core.errors import UserError, near_name
from fedquilt.core.wording import counted
from fedquilt.data.label_files.csv_labels import LabelColumns, read_labels
from fedquilt.data.label_files.csv_rows import read_rows
from fedquilt.data.label_files.names import LabelNames
from fedquilt.data.problems import Problems

SHOWN = 8  # names that a sentence lists


@dataclass(frozen=True, kw_only=True)
class NotJudged:
    """What a label file and a model do not have in common."""

    classes: tuple[str, ...]  # of the model: no image has a label
    columns: tuple[str, ...]  # of the file: the model does not know them
    known_classes: tuple[str, ...]  # of the model, for hints

    def sentences(self) -> list[str]:
        found = []
        if self.classes:
            found.append(
                f"{len(self.classes)} of {counted(len(self.known_classes), 'class', 'classes')} "
                f"cannot be judged, as no image has a label for them: {_listed(self.classes)}"
            )
        if self.columns:
            hints = [f"{name}{self._like(name)}" for name in self.columns]
            found.append(
                f"{_listed(hints)}: no class of this model, so not used; if a column is one under "
                "another name, map it with --label-names"
            )
        return found

    def _like(self, column: str) -> str:
        near = near_name(column, self.known_classes)
        return f" (did you mean {near!r}?)" if near else ""


def _listed(names: Sequence[str]) -> str:
    rest = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def judgeable_columns(
    path: Path, columns: LabelColumns, classes: Sequence[str]
) -> tuple[LabelColumns, NotJudged]:
    """Return how to read the label file for a model with these classes, and what is left out.

    Raise UserError if the file has no label for any of the classes.
    """
    problems = Problems()
    rows = read_rows(path, columns.image_column, problems)
    if rows is None or not rows.rows:
        raise problems.error(f"the label file {path}")
    taken = {*columns.roles.values(), *columns.ignore_columns}
    rest = [name for name in rows.header if name not in taken]
    names = _only(columns.names, classes)
    meant = {column: _targets(column, columns.names) & set(classes) for column in rest}
    unknown = tuple(name for name in rest if not meant[name])
    narrowed = replace(
        columns,
        classes=tuple(name for name in classes if any(name in meant[c] for c in rest)),
        ignore_columns=(*columns.ignore_columns, *unknown),
        names=names,
    )
    narrowed = _without_blank_classes(path, narrowed, meant)
    if not narrowed.classes:
        raise UserError(
            f"{path} has no label for any class of this model; its columns are {_listed(rest)}, "
            f"the model's classes {_listed(classes)}; map its column names to these classes with "
            "--label-names"
        )
    missing = tuple(name for name in classes if name not in narrowed.classes)
    return narrowed, NotJudged(classes=missing, columns=unknown, known_classes=tuple(classes))


def _targets(column: str, names: LabelNames) -> set[str]:
    """Return the classes that a column may mean, at any site."""
    by_site = {table[column] for table in names.by_site.values() if column in table}
    return by_site | {names.everywhere.get(column, column)}


def _only(names: LabelNames, classes: Sequence[str]) -> LabelNames:
    """Return the translations to these classes: a file may be made for another model too."""

    def kept(table: Mapping[str, str]) -> dict[str, str]:
        return {column: target for column, target in table.items() if target in classes}

    by_site = {site: kept(table) for site, table in names.by_site.items()}
    return LabelNames(kept(names.everywhere), {s: table for s, table in by_site.items() if table})


def _without_blank_classes(
    path: Path, columns: LabelColumns, meant: Mapping[str, set[str]]
) -> LabelColumns:
    """Leave out the classes whose columns are blank in every row."""
    table = read_labels(path, columns, Problems()) if columns.classes else None
    if table is None:
        return columns
    filled = {name for name, column in zip(table.classes, table.known.T) if bool(column.any())}
    kept = tuple(name for name in columns.classes or () if name in filled)
    blank = tuple(c for c, targets in meant.items() if targets and not targets & filled)
    return replace(
        columns,
        classes=kept,
        ignore_columns=(*columns.ignore_columns, *blank),
        names=_only(columns.names, kept),
    )
