"""The study of docs/own_data.md: digits, three made-up hospitals, and blank labels."""

from __future__ import annotations

import csv
from pathlib import Path

from PIL import Image

from fedquilt.data.sources.digits_mosaic.load import DigitsMosaic


def write_own_study(folder: Path) -> None:
    """Write ``images``, ``labels.csv``, and ``broken.csv`` with mistakes in lines 3 and 5."""
    mosaic = DigitsMosaic(classes=3, train=360, test=1, digits_per_image=(0, 3))
    train = mosaic.load(folder).train
    annotated = {"East": (0, 1), "North": (1, 2), "West": (0,)}
    rows = [["image", "patient", "site", "zero", "one", "two"]]
    (folder / "images").mkdir()
    for number, labels in enumerate(train.labels.tolist()):
        name, site = f"{number:03d}.png", list(annotated)[number % 3]
        Image.fromarray(train.images[number, 0].numpy()).save(folder / "images" / name)
        cells = [str(labels[c]) if c in annotated[site] else "" for c in range(3)]
        rows.append([name, f"{site[0]}{number // 6:02d}", site, *cells])
    _write_rows(folder / "labels.csv", rows)
    rows[2][4], rows[4][0] = "maybe", "3.png"
    _write_rows(folder / "broken.csv", rows)


def _write_rows(path: Path, rows: list[list[str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
