"""Differing label names, translated to those of the study by a small TOML file.

    [labels]                          # holds at every site
    "Pleural effusion" = "Effusion"

    [sites."St. Mary".labels]         # holds for the rows of this site, and goes first there
    "Erguss" = "Effusion"

On the left a column of the label file, on the right a class of the study. Columns that are not
listed keep their names. Several columns may become one class: a row is annotated where any of them
is, a written 1 or 0 outweighs "uncertain", and a row where one says 1 and another 0 is a problem.
A column that only some sites translate must be blank at the others, unless its own name is a class
of the study too (then say so: ``"Erguss" = "Erguss"`` under ``[labels]``, or in the class list).
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedquilt.core.errors import UserError, nearest
from fedquilt.data.problems import Kind, Problems

BAD_NAMES = Kind(
    "bad-label-names",
    "the label-name file does not fit the label file",
    "on the left goes a column of the label file, on the right a class of the study, and every "
    "site named must have rows; mend the file given by label_names (--label-names)",
)


@dataclass(frozen=True)
class LabelNames:
    """Which class of the study a column means."""

    everywhere: Mapping[str, str] = field(default_factory=dict)
    by_site: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def columns(self) -> set[str]:
        return set(self.everywhere).union(*self.by_site.values())

    def classes(self) -> set[str]:
        tables = (self.everywhere, *self.by_site.values())
        return {target for table in tables for target in table.values()}


def read_label_names(path: Path) -> LabelNames:
    """Read the TOML file; whether it fits a label file shows when that is read."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UserError(f"the label-name file {path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(
            f"the label-name file {path} is not valid TOML: {error}; expected lines such as "
            '"Pleural effusion" = "Effusion" under [labels] or [sites."St. Mary".labels]'
        ) from None
    _only(document, ("labels", "sites"), str(path))
    sites = _table(document, "sites", str(path))
    by_site = {}
    for site in sites:
        place = f'{path}, [sites."{site}"]'
        entry = _table(sites, site, str(path))
        _only(entry, ("labels",), place)
        by_site[site.strip()] = _names(entry, place)
    return LabelNames(_names(document, str(path)), by_site)


def check_names(
    names: LabelNames,
    columns: Iterable[str],
    classes: Sequence[str] | None,
    sites: Sequence[str] | None,
    problems: Problems,
) -> None:
    """Report what the file names and the label file does not have."""
    known = set(columns)
    for column in sorted(names.columns() - known):
        problems.add(BAD_NAMES, f"no label column {column!r}{nearest(column, known)}")
    for target in sorted(names.classes().difference(classes or names.classes())):
        problems.add(BAD_NAMES, f"no class {target!r} in the study{nearest(target, classes or ())}")
    if names.by_site and sites is None:
        problems.add(BAD_NAMES, "it has [sites] but no site column was named (--site-column)")
        return
    for site in sorted(set(names.by_site).difference(sites or ())):
        problems.add(BAD_NAMES, f"site {site!r} has no image{nearest(site, set(sites or ()))}")


def _only(table: Mapping[str, object], known: Sequence[str], place: str) -> None:
    for key in table:
        if key not in known:
            raise UserError(f"{place}: unknown entry {key!r}{nearest(key, known)}")


def _table(document: Mapping[str, object], key: str, place: str) -> dict[str, object]:
    found = document.get(key, {})
    if not isinstance(found, dict):
        raise UserError(f"{place}: {key!r} must be a table, found {found!r}")
    return found


def _names(document: Mapping[str, object], place: str) -> dict[str, str]:
    names = {}
    for column, target in _table(document, "labels", place).items():
        if not isinstance(target, str) or not target.strip():
            raise UserError(
                f"{place}: the label {column!r} must be given a class name, found {target!r}"
            )
        names[column.strip()] = target.strip()
    return names
