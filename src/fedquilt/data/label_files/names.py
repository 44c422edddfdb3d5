"""The label-name file: a TOML file that translates label columns to the classes of the study.

    [labels]                          # for every site
    "Pleural effusion" = "Effusion"

    [sites."St. Mary".labels]         # for the rows of this site; takes precedence
    "Erguss" = "Effusion"

The left side is a column of the label file, the right side a class of the study. Columns that are
not listed keep their names. Several columns may become one class: an image is annotated if any of
them is, 1 and 0 override "uncertain", and a row with both 1 and 0 is a problem. A column that only
some sites translate must be blank at the others, unless its own name is also a class of the study
(then list it: ``"Erguss" = "Erguss"`` under ``[labels]``, or in the class list).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from unicodedata import normalize

from fedquilt.core.errors import UserError, nearest
from fedquilt.core.parsed_text import parse_toml
from fedquilt.data.problems import Kind, Problems

BAD_NAMES = Kind(
    "bad-label-names",
    "the label-name file does not fit the label file",
    "the left side must be a column of the label file, the right side a class of the study, and "
    "every site must have rows; fix the file given by label_names (--label-names)",
)


@dataclass(frozen=True)
class LabelNames:
    """The class of the study for each label column, for all sites and per site."""

    everywhere: Mapping[str, str] = field(default_factory=dict)
    by_site: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def columns(self) -> set[str]:
        """All translated columns."""
        return set(self.everywhere).union(*self.by_site.values())

    def classes(self) -> set[str]:
        """All classes that columns are translated to."""
        tables = (self.everywhere, *self.by_site.values())
        return {target for table in tables for target in table.values()}


def read_label_names(path: Path) -> LabelNames:
    """Read the TOML file; ``check_names`` compares it with a label file."""
    try:
        document = parse_toml(normalize("NFC", path.read_text(encoding="utf-8-sig")))
    except OSError as error:
        raise UserError(f"the label-name file {path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise UserError(
            f"the label-name file {path} is not valid TOML: {error}; expected lines such as "
            '"Pleural effusion" = "Effusion" under [labels] or [sites."St. Mary".labels]'
        ) from None
    _check_keys(document, ("labels", "sites"), str(path))
    sites = _table(document, "sites", str(path))
    by_site = {}
    for site in sites:
        where = f'{path}, [sites."{site}"]'
        entry = _table(sites, site, str(path))
        _check_keys(entry, ("labels",), where)
        by_site[site.strip()] = _names(entry, where)
    return LabelNames(_names(document, str(path)), by_site)


def check_names(
    names: LabelNames,
    columns: Iterable[str],
    classes: Sequence[str] | None,
    sites: Sequence[str] | None,
    problems: Problems,
) -> None:
    """Report columns, classes and sites of the file that the label file does not have."""
    known = set(columns)
    for column in sorted(names.columns() - known):
        problems.add(BAD_NAMES, f"no label column {column!r}{nearest(column, known)}")
    for target in sorted(names.classes().difference(classes or names.classes())):
        problems.add(BAD_NAMES, f"no class {target!r} in the study{nearest(target, classes or ())}")
    if names.by_site and sites is None:
        problems.add(BAD_NAMES, "it has [sites], but no site column was named (--site-column)")
        return
    for site in sorted(set(names.by_site).difference(sites or ())):
        problems.add(BAD_NAMES, f"site {site!r} has no image{nearest(site, set(sites or ()))}")


def _check_keys(table: Mapping[str, object], known: Sequence[str], where: str) -> None:
    for key in table:
        if key not in known:
            raise UserError(f"{where}: unknown entry {key!r}{nearest(key, known)}")


def _table(document: Mapping[str, object], key: str, where: str) -> dict[str, object]:
    found = document.get(key, {})
    if not isinstance(found, dict):
        raise UserError(f"{where}: {key!r} must be a table, found {found!r}")
    return found


def _names(document: Mapping[str, object], where: str) -> dict[str, str]:
    names = {}
    for column, target in _table(document, "labels", where).items():
        if not isinstance(target, str) or not target.strip():
            raise UserError(
                f"{where}: the label {column!r} must be given a class name, found {target!r}"
            )
        names[column.strip()] = target.strip()
    return names
