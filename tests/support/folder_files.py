"""Small image folders and label files for the tests of a user's own data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from fedquilt.data.label_files.csv_labels import CsvLabels, LabelColumns, read_labels
from fedquilt.data.problems import Problems


def write_csv(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.encode(encoding))
    return path


def write_grey(path: Path, value: int, size: tuple[int, int] = (8, 8)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", size, value).save(path)
    return path


def make_folder(root: Path, text: str) -> tuple[Path, Path]:
    """Write a label file and one image per row, named by its first cell, as grey as its line."""
    images = root / "images"
    images.mkdir(parents=True)
    for line, row in enumerate(text.strip().splitlines()[1:], start=2):
        write_grey(images / row.split(",")[0], line)
    return images, write_csv(root / "labels.csv", text)


def read(
    path: Path, text: str, *, encoding: str = "utf-8", **columns: object
) -> tuple[CsvLabels | None, Problems]:
    problems = Problems()
    write_csv(path / "labels.csv", text, encoding)
    settings = LabelColumns(**columns)  # type: ignore[arg-type]
    return read_labels(path / "labels.csv", settings, problems), problems


def full_report(problems: Problems) -> str:
    """All problems as one text, with the private details that only the user sees."""
    parts = []
    for problem in problems:
        parts += [problem.title, *problem.lines(private=True), problem.kind.advice]
    return "\n".join(parts)


def noise(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
