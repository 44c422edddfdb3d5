"""Warnings about names that differ only in form, copies of images, and columns of covariates."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from fedquilt.core.wording import counted
from fedquilt.data.label_files.csv_labels import CsvLabels
from fedquilt.data.sources.folder.load import FolderContent

SHOWN = 3  # groups of lines in a warning
COVARIATES = {  # words of column names
    *("adult", "age", "bmi", "child", "elderly", "emergency", "ethnicity", "female"),
    *("gender", "inpatient", "insurance", "male", "obese", "outpatient", "paediatric", "pediatric"),
    *("portable", "pregnant", "race", "sex", "smoker", "smoking", "weekend"),
}


def look_alike_warnings(content: FolderContent, digests: Mapping[int, bytes]) -> list[str]:
    """Warnings that name no image and no patient.

    ``digests`` are hashes of the decoded images by line of the label file, without images of one
    value; empty if images were not opened.
    """
    table = content.table
    return [
        *_names_in_several_forms("sites", table.sites or (), "each is a client of its own"),
        *_names_in_several_forms("classes", table.classes, "each is a class of its own"),
        *_patients_in_several_forms(table),
        *_covariates(table.classes),
        *_copies(content, digests),
    ]


def _names_in_several_forms(what: str, names: Iterable[str], consequence: str) -> list[str]:
    return [
        f"the {what} {' and '.join(map(repr, sorted(forms)))} differ only in case or spaces: "
        f"{consequence}; write them alike if they are one"
        for forms in _by_form(set(names), _without_case_and_spaces).values()
        if len(forms) > 1
    ]


def _patients_in_several_forms(table: CsvLabels) -> list[str]:
    if table.groups is None:
        return []
    first_line = dict(zip(reversed(table.groups), reversed(table.lines)))
    several = [
        forms for forms in _by_form(set(table.groups), _number_form).values() if len(forms) > 1
    ]
    if not several:
        return []
    return [
        f"{counted(len(several), 'patient is', 'patients are')} written in several forms, for "
        "example with and without leading zeros, '.0' or capitals "
        f"({_examples(sorted(first_line[form] for form in forms) for forms in several)}): each "
        "form counts as another patient, who may be in train and test; write them alike"
    ]


def _covariates(classes: Sequence[str]) -> list[str]:
    found = [name for name in classes if COVARIATES & set(_words(name))]
    return [
        f"the column {name!r} looks like a fact about the patient or the recording, not like a "
        "finding: it is used as a class; if it is none, put it in ignore_columns (--ignore-columns)"
        for name in found
    ]


@dataclass(frozen=True)
class _Copies:
    """Rows of a table that show the same image."""

    rows: list[int]
    table: CsvLabels

    @property
    def lines(self) -> list[int]:
        return [self.table.lines[row] for row in self.rows]

    @property
    def are_at_several_sites(self) -> bool:
        sites = self.table.sites
        return sites is not None and len({sites[row] for row in self.rows}) > 1

    @property
    def disagree(self) -> bool:
        """Whether a class is annotated as present in one row and as absent in another."""
        labels, known = self.table.labels[self.rows].bool(), self.table.known[self.rows]
        return bool(((labels & known).any(0) & (~labels & known).any(0)).any())


def _copies(content: FolderContent, digests: Mapping[int, bytes]) -> list[str]:
    table = content.table
    rows_of: defaultdict[bytes, list[int]] = defaultdict(list)
    for row, line in enumerate(table.lines):
        if line in digests:
            rows_of[digests[line]].append(row)
    found = [_Copies(rows, table) for rows in rows_of.values() if len(rows) > 1]
    several_splits = [each for each in found if _is_in_several_splits(each.rows, content)]
    kinds: tuple[tuple[Sequence[_Copies], str], ...] = (
        (found, "under several names: keep one row per image"),
        (
            [each for each in found if each.are_at_several_sites],
            "at several sites: sites that share images are no independent clients",
        ),
        (
            [each for each in found if each.disagree],
            "several times with labels that contradict each other: decide which is right",
        ),
        (
            several_splits,
            "in more than one split, so results look too good: keep one row per image, or "
            "give the rows one patient",
        ),
    )
    return [
        f"{counted(len(copies), 'image occurs', 'images occur')} {what} "
        f"({_examples(each.lines for each in copies)})"
        for copies, what in kinds
        if copies
    ]


def _is_in_several_splits(rows: Sequence[int], content: FolderContent) -> bool:
    return content.splits is not None and len(set(content.splits[list(rows)].tolist())) > 1


def _by_form(names: Iterable[str], form_of: Callable[[str], str]) -> dict[str, list[str]]:
    forms: defaultdict[str, list[str]] = defaultdict(list)
    for name in sorted(names):
        forms[form_of(name)].append(name)
    return forms


def _without_case_and_spaces(name: str) -> str:
    return re.sub(r"[\s_]+", "", name).casefold()


def _number_form(name: str) -> str:
    """``1`` for ``1``, ``1.0``, ``001``; ``p7`` for ``P007``."""
    plain = re.sub(r"^(\d+)\.0+$", r"\1", _without_case_and_spaces(name))
    return re.sub(r"(?<!\d)0+(?=\d)", "", plain)


def _words(name: str) -> list[str]:
    """The lower-case words of a column name: ``ageGroup_2`` has age, group and 2."""
    return re.findall(r"[a-z]+|\d+", re.sub(r"([a-z])([A-Z])", r"\1 \2", name).lower())


def _examples(lines: Iterable[Sequence[int]]) -> str:
    groups = [[str(line) for line in sorted(each)[:SHOWN]] for each in lines]
    shown = [f"{', '.join(each[:-1])} and {each[-1]}" for each in groups[:SHOWN]]
    more = "; ..." if len(groups) > SHOWN else ""
    return f"lines {'; '.join(shown)}{more}"
