"""List the image files that a user names: files, folders, globs, CSV files of paths, DICOM series.

A folder is searched with its sub-folders. Its other files are skipped and counted. The slices of a
DICOM series follow each other by series and instance number, whatever their file names are.
"""

from __future__ import annotations

import csv
import glob
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedquilt.core.errors import UserError
from fedquilt.core.wording import counted
from fedquilt.data.images.decoding import PICTURE_SUFFIXES, SUFFIXES
from fedquilt.data.images.dicom import DICOM_SUFFIXES, is_dicom, series_places

PATH_COLUMNS = ("image", "path", "file", "filename", "file_name", "image_path")
MAX_NAMED_ENDINGS = 4


@dataclass(frozen=True)
class Listing:
    """Image files in the order of the arguments, and notes on what was skipped or sorted."""

    paths: tuple[Path, ...]
    notes: tuple[str, ...]


def list_images(arguments: Sequence[str | Path]) -> Listing:
    """Find the images; a single file is taken as it is, whether it can be read or not."""
    paths: list[Path] = []
    notes: list[str] = []
    for argument in arguments:
        paths += _named(Path(argument), notes)
    if not paths:
        raise UserError(f"no image to predict in {', '.join(map(str, arguments)) or 'nothing'}")
    return Listing(tuple(paths), tuple(notes))


def _named(argument: Path, notes: list[str]) -> Iterable[Path]:
    if argument.is_dir():
        return _in_folder(argument, notes)
    if argument.suffix.lower() == ".csv" and argument.is_file():
        return _in_csv(argument)
    if not argument.exists() and glob.has_magic(str(argument)):
        return _matching(str(argument), notes)
    return [argument]


def _matching(pattern: str, notes: list[str]) -> list[Path]:
    found = [Path(name) for name in sorted(glob.glob(pattern, recursive=True))]  # noqa: PTH207
    if not found:
        raise UserError(f"no file matches {pattern}; check the folder and the ending")
    files = [path for path in found if not path.is_dir()]
    inside = [path for folder in found if folder.is_dir() for path in _in_folder(folder, notes)]
    # With ** a file is found by itself and in its folder.
    return list(dict.fromkeys([*files, *inside]))


def _in_folder(folder: Path, notes: list[str]) -> list[Path]:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not _is_hidden(path))
    dicom = [path for path in files if _may_be_dicom(path)]
    images = [path for path in files if path.suffix.lower() in PICTURE_SUFFIXES]
    skipped = Counter(path.suffix or path.name for path in set(files) - {*images, *dicom})
    if not images and not dicom:
        found = (
            f"{sum(skipped.values())} other files: {_endings(skipped)}" if skipped else "nothing"
        )
        raise UserError(
            f"the folder {folder} holds no image; found {found}; expected files that end in "
            f"{', '.join(SUFFIXES)}, or DICOM files without an ending"
        )
    if skipped:
        notes.append(f"{folder}: skipped {sum(skipped.values())} other files ({_endings(skipped)})")
    return images + _in_series_order(folder, dicom, notes)


def _is_hidden(path: Path) -> bool:
    return path.name.startswith(".") or path.name == "DICOMDIR"  # an index, not an image


def _endings(skipped: Counter[str]) -> str:
    named = [f"{ending} {count}" for ending, count in skipped.most_common(MAX_NAMED_ENDINGS)]
    return ", ".join(named) + (", ..." if len(skipped) > MAX_NAMED_ENDINGS else "")


def _may_be_dicom(path: Path) -> bool:
    ending = path.suffix.lower()
    return ending in DICOM_SUFFIXES or (ending not in PICTURE_SUFFIXES and is_dicom(path))


def _in_series_order(folder: Path, files: list[Path], notes: list[str]) -> list[Path]:
    """Sort by series and instance number; a file whose header cannot be read comes last."""
    places = series_places(files)
    if not places:
        return files
    series = {place.series for place in places.values()}
    notes.append(
        f"{folder}: {counted(len(places), 'DICOM file')} of {len(series)} series, in the order of "
        "their instance numbers; every file is predicted by itself"
    )
    ordered = sorted(places, key=lambda path: (places[path], path))
    return ordered + [path for path in files if path not in places]


def _in_csv(path: Path) -> list[Path]:
    """Paths in a column that is named for them, or the only column; relative to the CSV file."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(file) if any(cell.strip() for cell in row)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path} cannot be read as CSV in UTF-8: {error}") from error
    cells = list(_path_cells(path, rows))
    if not cells:
        raise UserError(f"{path} names no image; expected one path a row")
    return [path.parent / cell for cell in cells]


def _path_cells(path: Path, rows: list[list[str]]) -> Iterator[str]:
    if not rows:
        return
    header = [cell.strip().lower() for cell in rows[0]]
    named = [header.index(name) for name in PATH_COLUMNS if name in header]
    if not named and len(header) > 1:
        raise UserError(
            f"{path} has the columns {', '.join(rows[0])}; expected a column named "
            f"{', '.join(PATH_COLUMNS[:-1])} or {PATH_COLUMNS[-1]}, or a single column of paths"
        )
    column = named[0] if named else 0
    for row in rows[1:] if named else rows:
        cell = row[column].strip() if column < len(row) else ""
        if cell:
            yield cell
