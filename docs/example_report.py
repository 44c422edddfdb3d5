"""Write docs/_static/example_report.html: three made-up hospitals that annotated parts of labels.

The pictures are of handwritten digits, and "zero" to "four" stand for findings. A
fourth hospital, which took no part, annotated two of them. Run ``python docs/example_report.py``;
it takes a minute. The page holds counts and curves, no picture.
"""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

from fedquilt.data.sources.digits_mosaic.load import DigitsMosaic

PAGE = Path(__file__).parent / "_static" / "example_report.html"
FINDINGS = ("zero", "one", "two", "three", "four")
TRAINING = {
    "East": ("zero", "one", "two"),
    "North": ("one", "two", "three"),
    "West": ("zero", "three", "four"),
}
ELSEWHERE = {"South": ("one", "four")}
IMAGES = {"trained": 1_200, "elsewhere": 240}
CARD = """\
title = "Digits at three made-up hospitals"
intended_use = "To show what a report looks like."
not_for = "Anything else."
devices = "Scans of handwritten digits (scikit-learn), joined to pictures of 16 x 16 pixels."
annotators = "The digits' own labels; those of other findings were left blank."
"""
OPTIONS = (
    *("--method", "fedavg-pl", "--grey", "--size", "16", "--backbone", "small-cnn"),
    *("--set", "method.training.lr=3e-3", "--set", "views.weak=plain"),
    *("--set", "validation.share=0.2", "--rounds", "20"),
    *("--threshold-rule", "sensitivity>=0.9", "--calibration", "platt"),
)


def write_hospitals(folder: Path, hospitals: dict[str, tuple[str, ...]], seed: int) -> None:
    """Write pictures of patients with two each, and labels.csv with blanks."""
    count = IMAGES[folder.name]
    mosaic = DigitsMosaic(
        classes=len(FINDINGS), train=count, test=1, digits_per_image=(0, 3), seed=seed
    )
    drawn = mosaic.load(folder).train
    (folder / "images").mkdir()
    with (folder / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["image", "patient", "site", *FINDINGS])
        for number, labels in enumerate(drawn.labels.tolist()):
            name, site = f"{number:04d}.png", list(hospitals)[number % len(hospitals)]
            Image.fromarray(drawn.images[number, 0].numpy()).save(folder / "images" / name)
            patient = f"{site[0]}{number // (2 * len(hospitals)):03d}"
            known = hospitals[site]
            cells = [label if find in known else "" for find, label in zip(FINDINGS, labels)]
            writer.writerow([name, patient, site, *cells])


def fedquilt(*arguments: str) -> None:
    command = [sys.executable, "-m", "fedquilt", *arguments]
    subprocess.run(command, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})


def main() -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for seed, (name, hospitals) in enumerate(
            {"trained": TRAINING, "elsewhere": ELSEWHERE}.items()
        ):
            (folder / name).mkdir()
            write_hospitals(folder / name, hospitals, seed)
        os.chdir(folder)
        Path("card.toml").write_text(CARD, encoding="utf-8")
        data = ("--data", "trained/images", "--labels", "trained/labels.csv")
        fedquilt("run", *data, *OPTIONS, "--out", "run")
        data = ("--data", "elsewhere/images", "--labels", "elsewhere/labels.csv")
        fedquilt("evaluate", "run", *data)
        fedquilt("report", "run", "--card", "card.toml")
        shutil.copyfile("run/report.html", PAGE)


if __name__ == "__main__":
    main()
