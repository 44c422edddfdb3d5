"""Write predictions to a file: CSV by image and class, or JSON with an object per image.

A batch is written as soon as it is predicted, so that a million images need no memory.
"""

from __future__ import annotations

import csv
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from fedquilt.core.errors import UserError

COLUMNS = (
    *("image", "class", "logit", "probability", "calibrated", "threshold", "decision"),
    *("unlike_training", "error"),
)
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet would run such a cell
Row = Mapping[str, Any]


class PredictionFile(ABC):
    """A file that gets its name when it is complete; until then it is named ``.partial``."""

    def __init__(self, path: Path) -> None:
        self.path, self.partial = path, path.with_name(f"{path.name}.partial")

    def __enter__(self) -> PredictionFile:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.partial.open("w", encoding="utf-8", newline="", errors="backslashreplace")
        self.begin(self._file)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.end(self._file)
        self._file.close()
        if error is None:
            self.partial.replace(self.path)

    @abstractmethod
    def begin(self, file: IO[str]) -> None:
        """Write what comes before the first image."""

    @abstractmethod
    def add(self, image: str, rows: Sequence[Row], error: str | None) -> None:
        """Write an image's rows, or why there are none."""

    def end(self, file: IO[str]) -> None:  # noqa: B027 (most formats need none)
        """Write what comes after the last image."""


class CsvFile(PredictionFile):
    """One row per image and class; a file that could not be read has one row with ``error``."""

    def begin(self, file: IO[str]) -> None:
        self._writer = csv.writer(file, lineterminator="\n")
        self._writer.writerow(COLUMNS)

    def add(self, image: str, rows: Sequence[Row], error: str | None) -> None:
        for row in rows or [{"image": image, "error": error}]:
            self._writer.writerow([safe_cell(row.get(column)) for column in COLUMNS])


class JsonLinesFile(PredictionFile):
    """One object per image, with what is needed to trace it: the model's hash and the version."""

    def __init__(self, path: Path, facts: Mapping[str, Any]) -> None:
        super().__init__(path)
        self._facts = facts

    def begin(self, file: IO[str]) -> None:
        pass

    def add(self, image: str, rows: Sequence[Row], error: str | None) -> None:
        self._file.write(_json({"image": image, **self._facts, **_found(rows, error)}) + "\n")


class JsonFile(JsonLinesFile):
    """One document: the facts once, and the list ``images``, each on a line of its own."""

    def begin(self, file: IO[str]) -> None:
        file.write(_json(self._facts)[:-1] + (", " if self._facts else "") + '"images": [')
        self._separator = "\n"

    def add(self, image: str, rows: Sequence[Row], error: str | None) -> None:
        self._file.write(self._separator + _json({"image": image, **_found(rows, error)}))
        self._separator = ",\n"

    def end(self, file: IO[str]) -> None:
        file.write("\n]}\n")


def _found(rows: Sequence[Row], error: str | None) -> dict[str, Any]:
    predictions = [{key: value for key, value in row.items() if key != "image"} for row in rows]
    return {"error": error, "predictions": predictions}


def _json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False, allow_nan=False)


FORMATS: Mapping[str, Callable[[Path, Mapping[str, Any]], PredictionFile]] = {
    ".csv": lambda path, facts: CsvFile(path),
    ".json": JsonFile,
    ".jsonl": JsonLinesFile,
}


def prediction_file(path: Path, facts: Mapping[str, Any]) -> PredictionFile:
    """Choose the format by the ending; raise UserError for another one or an existing file."""
    form = FORMATS.get(path.suffix.lower())
    if form is None:
        raise UserError(f"--out {path}: expected a name that ends in .csv, .json or .jsonl")
    if path.exists():
        raise UserError(f"{path} already exists; give another --out, or remove it first")
    return form(path, facts)


def safe_cell(value: Any) -> Any:
    """Put an apostrophe before text that a spreadsheet would take for a formula."""
    if isinstance(value, str) and value.startswith(FORMULA_STARTS):
        return "'" + value
    return value
