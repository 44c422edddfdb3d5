"""What does private training cost? AUC against epsilon, on digits, photographs and radiographs.

    python -m benchmarks.studies.quilt.data_sets --shared FOLDER --out carry/22
    python -m benchmarks.studies.private_training --folder carry/22 --workers 12

Five sites annotate 6 of 10 digits each, 3 of 5 labels of photographs (MIML scenes) or 4 of 6
findings. Trained is either a small CNN from a random start, all weights, or the head of a ResNet-18
that was trained on TinyImageNet and stays frozen. Learning rate, lot and clip are chosen for each
data set and network with seed 100, at epsilon 3 and without noise; rows of that seed are kept.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, TypeAlias

import numpy as np
import torch

from benchmarks.harness.frozen_features import TABLE, Bytes, Features, stored_features
from benchmarks.harness.pooled_rows import pooled_rows
from benchmarks.harness.result_csv import RESULTS, Row, write_results
from benchmarks.studies.quilt.data_sets import FREQUENT, _complete, _decoded, _findings, _split
from fedquilt.data.source import Splits
from fedquilt.data.sources.digits_mosaic.load import DigitsMosaic
from fedquilt.recipes.recipe import Recipe, recipe_from
from fedquilt.runs.experiment import run
from fedquilt.runs.finished_run import read_run

NAME = "studies/private_training"
EPSILONS = ("none", "8", "3", "1")
CNN, FROZEN = "small-cnn", "frozen resnet18"
CASES = {  # images to train on, of five sites; digits are drawn, so there may be more
    "digits": ("digits", CNN, 1400),
    "digits-frozen": ("digits", FROZEN, 1400),
    "scenes-frozen": ("scenes", FROZEN, 1600),
    "radiographs-frozen": ("radiographs", FROZEN, 700),
    "more-digits": ("digits", CNN, 4200),
}
LIKE = {"more-digits": "digits"}  # too slow to be tuned itself
MISSING = {"digits": 4, "scenes": 2, "radiographs": 2}  # classes that a site does not annotate
TESTED = {"scenes": 0.2, "radiographs": 0.3}  # share of the images, or of the patients
ROUNDS = 20  # of one epoch
SEEDS = range(21, 26)
DELTA = 1e-4
TUNING_SEED, TUNED_AT = 100, "3"
RATES, CLIPS = (3e-3, 1e-2, 3e-2), (1.0, 0.1)
LOTS = (0.1, 0.5)  # share of a site's images in a step, on average
Jobs: TypeAlias = list[Row]


def splits_of(job: Row, folder: Path) -> Splits | None:
    """The features of a seed's images; None where the recipe draws the images."""
    data, seed = job["data"], int(job["seed"])
    if job["network"] == CNN:
        return None
    if data == "digits":
        drawn = DigitsMosaic(classes=10, train=int(job["images"]), seed=seed).load(folder)
        parts = [
            _complete(
                stored_features(folder, f"digits-{seed}-{split}", part.images.numpy()),
                part.labels.numpy(),
                part.classes,
                split,
            )
            for split, part in (("train", drawn.train), ("test", drawn.test))
        ]
        return Splits(train=parts[0], test=parts[1])
    pixels, labels, names, patients = _arrays(data, folder)
    table = stored_features(folder, data, pixels)
    return _split(table, labels, names, patients, seed, "test", TESTED[data])


def _arrays(data: str, folder: Path) -> tuple[Bytes, Bytes, tuple[str, ...], Any]:
    if data == "radiographs":
        stored, labels = _findings(folder)
        return stored["images"][:, None], labels, FREQUENT, stored["patient"]
    with np.load(folder / "scenes.npz") as file:
        pixels = np.stack(_decoded(file["jpeg"], file["offsets"])).transpose(0, 3, 1, 2)
        labels, names = file["labels"], tuple(str(name) for name in file["classes"])
    return np.ascontiguousarray(pixels), labels, names, np.arange(len(labels))


def recipe_of(job: Row) -> Recipe:
    images, seed = int(job["images"]), int(job["seed"])
    batch = round(float(job["lot"]) * images / 5)
    settings: dict[str, Any] = {
        "data": {"name": "digits-mosaic", "classes": 10, "train": images, "seed": seed},
        "partition": {"name": "iid", "clients": 5},
        "annotation": {"name": "missing", "missing": MISSING[job["data"]]},
        "views": {"weak": "plain"},
        "method": {
            "name": "fedavg-pl",
            "head_rows": "annotators",
            "positive_weight": "none",
            "weighting": "uniform",
            "training": {"lr": float(job["lr"]), "batch_size": batch, "epochs": 1},
        },
        "rounds": ROUNDS,
        "seed": seed,
        "evaluation": {"every": ROUNDS},
        "checkpoint_every": ROUNDS,
    }
    if job["epsilon"] != "none":
        settings["privacy"] = {
            "epsilon": float(job["epsilon"]),
            "delta": DELTA,
            "training": True,
            "clip": float(job["clip"]),
        }
    if job["network"] == CNN:
        return recipe_from(settings)
    recipe = recipe_from(settings | {"model": TABLE})
    return replace(recipe, model=replace(recipe.model, backbone=Features))


def one_run(folder: Path, job: Row) -> Row:
    torch.set_num_threads(1)
    recipe, began = recipe_of(job), time.monotonic()
    splits = splits_of(job, folder)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        run(recipe, place / "run", cache=place, splits=splits, engine="sequential")
        metrics = read_run(place / "run").result["metrics"]
    found = {metric: round(100 * metrics[metric], 2) for metric in ("macro_auc", "map")}
    return {**found, "seconds": round(time.monotonic() - began, 1)}


def job_of(case: str, epsilon: str, seed: int, lr: float, lot: float, clip: float) -> Row:
    data, network, images = CASES[case]
    about: Row = {"data": data, "network": network, "images": images, "epsilon": epsilon}
    return about | {"seed": seed, "lr": lr, "lot": lot, "clip": clip}


def tries(case: str) -> Jobs:
    """What is tried with the tuning seed; without noise nothing is clipped."""
    return [
        job_of(case, epsilon, TUNING_SEED, lr, lot, clip)
        for epsilon in ("none", TUNED_AT)
        for lr, lot, clip in product(RATES, LOTS, CLIPS if epsilon == TUNED_AT else CLIPS[:1])
    ]


def chosen(rows: Jobs, case: str, epsilon: str) -> dict[str, float]:
    """The setting with the best AUC on the tuning seed."""
    kind = epsilon if epsilon == "none" else TUNED_AT
    same = _tried(rows, LIKE.get(case, case), kind)
    best = max(same, key=lambda row: float(row["macro_auc"]))
    return {name: float(best[name]) for name in ("lr", "lot", "clip")}


def _tried(rows: Jobs, case: str, epsilon: str) -> Jobs:
    return [row for row in _of_case(rows, case, epsilon) if int(row["seed"]) == TUNING_SEED]


def _of_case(rows: Jobs, case: str, epsilon: str) -> Jobs:
    names = ("data", "network", "images")
    expected = tuple(map(str, CASES[case]))
    return [
        row
        for row in rows
        if tuple(str(row[name]) for name in names) == expected and row["epsilon"] == epsilon
    ]


def summary(rows: Jobs) -> Jobs:
    """Mean and standard deviation over seeds, without the tuning seed."""
    found = []
    for case, epsilon in product(CASES, EPSILONS):
        same = [row for row in _of_case(rows, case, epsilon) if int(row["seed"]) != TUNING_SEED]
        if not same:
            continue
        data, network, images = CASES[case]
        line: Row = {"data": data, "network": network, "images": images, "epsilon": epsilon}
        line["runs"] = len(same)
        for name in ("macro_auc", "map", "seconds"):
            values = [float(row[name]) for row in same]
            line[name] = round(fmean(values), 2)
            line[f"{name}_deviation"] = round(stdev(values), 2) if len(values) > 1 else ""
        line |= {name: same[0][name] for name in ("lr", "lot", "clip")}
        found.append(line | {"run_on": "; ".join(sorted({str(row["hardware"]) for row in same}))})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("carry/22"))
    parser.add_argument("--cases", nargs="+", choices=CASES, default=[*CASES])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1e9, help="start no run later")
    parser.add_argument("--out", type=Path, default=RESULTS / f"{NAME}_runs.csv")
    options = parser.parse_args()
    ends = time.monotonic() + options.seconds
    work = partial(one_run, options.folder)

    def rows_of(jobs: Jobs) -> Jobs:
        seconds = ends - time.monotonic()
        return pooled_rows(options.out, jobs, work, workers=options.workers, seconds=seconds)

    for case in options.cases:  # features are computed before several processes ask for them
        for seed in (TUNING_SEED, *SEEDS):
            splits_of(job_of(case, "none", seed, 0.0, 0.0, 0.0), options.folder)
    tuning = list(dict.fromkeys(LIKE.get(case, case) for case in options.cases))
    tuned = rows_of([job for case in tuning for job in tries(case)])
    found = sum(len(_tried(tuned, case, each)) for case in tuning for each in ("none", TUNED_AT))
    if found < sum(len(tries(case)) for case in tuning):
        print("not all settings were tried; start again to go on", flush=True)
        return
    rows = rows_of(
        [
            job_of(case, epsilon, seed, **chosen(tuned, case, epsilon))
            for case, seed, epsilon in product(options.cases, SEEDS, EPSILONS)
        ]
    )
    if options.out == RESULTS / f"{NAME}_runs.csv":
        write_results(NAME, summary(rows))


if __name__ == "__main__":
    main()
