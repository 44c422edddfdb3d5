"""Read the rows of a CSV file strictly: encoding, separator and number of cells are checked.

UTF-8 is read with or without a byte-order mark, UTF-16 and UTF-32 with one. Cells are separated by
commas; a semicolon, tab or vertical bar is accepted, with a notice, if only that separator yields
the required column.
"""

from __future__ import annotations

import codecs
import csv
import io
import unicodedata
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedquilt.core.errors import near_name, nearest
from fedquilt.core.wording import counted
from fedquilt.data.problems import Kind, Problems

SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "vertical bar"}
# The mark of UTF-32 begins with that of UTF-16, so it is tested first.
MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}

ROLES = ("site", "patient", "split")  # recognised by the name of the column alone
MEANINGS = {  # column names that mean the same as a role
    "image": "filename file file_name path filepath image_path image_name image_file image_id "
    "image_index img img_name picture name id",
    "patient": "patient_id patientid pat_id pid subject subject_id case case_id person",
    "site": "hospital center centre clinic institution site_id hospital_id scanner institute",
    "split": "set fold subset partition part",
}

UNREADABLE = Kind(
    "unreadable-csv",
    "the label file cannot be read",
    "give a text file of comma-separated values; in a spreadsheet: save as 'CSV UTF-8'",
)
EMPTY = Kind(
    "empty-csv",
    "the label file holds no rows",
    "expected a header line with the column names, then one line per image",
)
HEADER = Kind(
    "bad-header",
    "the header line of the label file is wrong",
    "expected distinct, non-empty column names, one of them for the image; fix the first line, "
    "or name the column with image_column (--image-column)",
)
CELLS = Kind(
    "bad-cell-count",
    "lines with too many or too few cells",
    "every line needs one cell per column of the header: look for a missing or extra separator, "
    'and put text that contains a separator in quotes ("...")',
)


@dataclass
class CsvRows:
    """A header and the rows below it, which have as many cells as the header."""

    header: tuple[str, ...]
    rows: list[list[str]] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)  # first line of each row, counted from 1
    notices: list[str] = field(default_factory=list)

    def column(self, name: str) -> list[str]:
        """The stripped cells of a column."""
        index = self.header.index(name)
        return [row[index].strip() for row in self.rows]


def meant(given: str, role: str, header: Sequence[str]) -> str:
    """Return a hint at the column with this name, misspelt, or with the meaning of this role."""
    words = MEANINGS[role].split()
    if near_name(given, header) is not None:
        return nearest(given, header)
    by_word = {"_".join(name.casefold().replace("-", " ").split()): name for name in header}
    column = next((by_word[word] for word in words if word in by_word and word != given), None)
    if column is None:
        return nearest(given, header)
    return f", but there is {column!r}: name it with {role}_column (--{role}-column {column!r})"


def read_rows(path: Path, required: str, problems: Problems) -> CsvRows | None:
    """Read ``path``, whose header must have the column ``required``; ``None`` if it is unusable."""
    text = _text_of(path, problems)
    if text is None:
        return None
    required = unicodedata.normalize("NFC", required)
    text, announced = _without_separator_line(text)
    if not text.strip():
        problems.add(EMPTY, "the file is empty")
        return None
    separator, notices = (announced, []) if announced else _separator(text, required)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    found: CsvRows | None = None
    end = 0
    try:
        for cells in reader:
            line, end = end + 1, reader.line_num
            if not any(cell.strip() for cell in cells):
                continue
            if found is None:
                found = CsvRows(tuple(cell.strip() for cell in cells), notices=notices)
            else:
                _add_row(found, cells, line, problems)
    except csv.Error as error:
        problems.add(UNREADABLE, f"line {end + 1}: {error}")
        return None
    if found is None:
        problems.add(EMPTY, "no line holds a value")
        return None
    _drop_unnamed_columns(found)
    if not found.rows and not problems:
        problems.add(EMPTY, "only a header was found")
    return found if _is_header_valid(found.header, required, problems) else None


def recognised_columns(path: Path, image_column: str, taken: Collection[str]) -> dict[str, str]:
    """Return the column of each role that is named like it; ``taken`` has another use.

    Case does not matter. A file that cannot be read has none: reading it again reports why.
    """
    rows = read_rows(path, image_column, Problems())
    if rows is None:
        return {}
    free = [name for name in rows.header if name != image_column and name not in taken]
    by_role = {name.casefold(): name for name in reversed(free)}
    return {role: by_role[role] for role in ROLES if role in by_role}


def _text_of(path: Path, problems: Problems) -> str | None:
    try:
        raw = path.read_bytes()
    except OSError as error:
        problems.add(UNREADABLE, f"{path}: {error.strerror or type(error).__name__}")
        return None
    if raw.startswith(b"PK\x03\x04"):
        problems.add(UNREADABLE, f"{path} is a spreadsheet or zip file, not CSV text")
        return None
    encoding = next((name for mark, name in MARKS.items() if raw.startswith(mark)), "utf-8")
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        problems.add(UNREADABLE, f"line {line}: byte {raw[error.start]:#04x} is not {encoding}")
        return None
    if "\0" in text:
        problems.add(UNREADABLE, "zero bytes found: binary, or UTF-16 without a byte-order mark")
        return None
    return unicodedata.normalize("NFC", text)  # a Mac may write accents as letters of their own


def _without_separator_line(text: str) -> tuple[str, str | None]:
    """Remove the line ``sep=;``, in which spreadsheets announce the separator, and return it."""
    first, _, rest = text.partition("\n")
    mark = first.strip('\r"')
    if mark[:4].casefold() != "sep=" or mark[4:5] not in SEPARATORS or len(mark) != 5:
        return text, None
    return "\n" + rest, mark[4]  # the blank line keeps the numbers of the lines


def _separator(text: str, required: str) -> tuple[str, list[str]]:
    """The comma, unless exactly one other separator yields the required column."""
    first = next(line for line in text.splitlines() if line.strip())
    if len(first) > csv.field_size_limit():
        return ",", []  # too long for a header, which is reported later
    fitting = [
        separator
        for separator in SEPARATORS
        if required in (cell.strip() for cell in next(csv.reader([first], delimiter=separator)))
        and separator in first
    ]
    if len(fitting) != 1 or fitting[0] == ",":
        return ",", []
    word = SEPARATORS[fitting[0]]
    return fitting[0], [f"the label file separates cells by {word}, not by comma"]


def _add_row(found: CsvRows, cells: list[str], line: int, problems: Problems) -> None:
    width = len(found.header)
    if len(cells) > width and not any(cell.strip() for cell in cells[width:]):
        cells = cells[:width]
    if len(cells) == width:
        found.rows.append(cells)
        found.lines.append(line)
        return
    problems.add(
        CELLS, f"line {line}: {counted(len(cells), 'cell')}, the header has {len(found.header)}"
    )


def _drop_unnamed_columns(found: CsvRows) -> None:
    """Drop empty columns without a name, and the row numbers that pandas writes first."""

    def is_dropped(index: int) -> bool:
        cells = [row[index].strip() for row in found.rows]
        name = found.header[index]
        if not name and not any(cells):
            return True
        return index == 0 and name in ("", "Unnamed: 0") and _are_row_numbers(cells)

    dropped = {index for index in range(len(found.header)) if is_dropped(index)}
    if not dropped:
        return
    kept = [index for index in range(len(found.header)) if index not in dropped]
    found.header = tuple(found.header[index] for index in kept)
    found.rows = [[row[index] for index in kept] for row in found.rows]
    where = ", ".join(str(index + 1) for index in sorted(dropped))
    found.notices.append(f"columns without a name, or with row numbers, are not read: {where}")


def _are_row_numbers(cells: Sequence[str]) -> bool:
    return bool(cells) and all(map(str.isdecimal, cells)) and len(set(cells)) == len(cells)


def _is_header_valid(header: tuple[str, ...], required: str, problems: Problems) -> bool:
    for index, name in enumerate(header):
        if not name:
            problems.add(HEADER, f"column {index + 1} has no name")
        elif name in header[:index]:
            first = header.index(name) + 1
            problems.add(HEADER, f"column {index + 1} repeats the name {name!r} of column {first}")
    if required in header:
        return len(set(header)) == len(header) and all(header)
    inside = [word for mark, word in SEPARATORS.items() if mark in header[0] and mark != ","]
    hint = meant(required, "image", header)
    if inside:
        hint = f"; does the file use a {inside[0]} as separator?"
    problems.add(HEADER, f"no column {required!r}{hint}")
    return False
