"""What does private training cost? AUC against epsilon, on digits, photographs and radiographs.

    python -m benchmarks.studies.private_training --shared FOLDER --workers 4

Five sites annotate 6 of 10 classes each (radiographs: 4 of 6 findings). Without noise the network,
the batches and the number of steps are the same. Learning rate and clip are chosen for each data
set with seed 100, at epsilon 3 and without noise; rows of that seed are kept.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, TypeAlias

import numpy as np
import torch

from benchmarks.harness.pooled_rows import pooled_rows
from benchmarks.harness.result_csv import RESULTS, Row, write_results
from benchmarks.studies.quilt.data_sets import FREQUENT, _complete, _decoded, _split
from fedquilt.data.source import Splits
from fedquilt.recipes.recipe import Recipe, recipe_from
from fedquilt.runs.experiment import run
from fedquilt.runs.finished_run import read_run

NAME = "studies/private_training"
EPSILONS = ("none", "8", "3", "1")
METHODS: dict[str, dict[str, Any]] = {
    "fedavg": {"name": "fedavg"},
    "fedavg-pl": {"name": "fedavg-pl", "head_rows": "annotators"},
    "quilt": {"name": "quilt", "logit_adjustment": False},
}
IMAGES = {"digits": 1400, "photographs": 4000, "radiographs": 700}  # to train on, of five sites
ROUNDS = {"digits": 20, "photographs": 12, "radiographs": 12}  # of one epoch
SEEDS = {"digits": range(21, 26), "photographs": range(21, 24), "radiographs": range(21, 24)}
BATCH = 28  # images, on average
PHOTOGRAPHS_TESTED = 2000
DELTA = 1e-4
TUNING_SEED, TUNED_AT = 100, "3"
RATES, CLIPS = (1e-3, 3e-3, 1e-2), (1.0, 0.1)
Jobs: TypeAlias = list[Row]


def splits_of(data: str, shared: Path, seed: int) -> Splits | None:
    """The images of a seed; None where the recipe draws them."""
    if data == "radiographs":
        with np.load(shared / "nih_chest1000_64px.npz") as stored:
            columns = [list(stored["classes"]).index(name) for name in FREQUENT]
            pixels = np.repeat(stored["images"][:, None], 3, axis=1)
            labels, patients = stored["labels"][:, columns], stored["patient"]
        return _split(pixels, labels, FREQUENT, patients, seed, "test", held_out=0.3)
    if data == "photographs":
        counts = {"train": IMAGES[data], "test": PHOTOGRAPHS_TESTED}
        parts = []
        with np.load(shared / "cifar10_jpeg.npz") as stored:
            names = tuple(str(name) for name in stored["classes"])
            for split, count in counts.items():
                labels, offsets = stored[f"{split}_labels"], stored[f"{split}_offsets"]
                rows = np.random.default_rng(seed).permutation(len(labels))[:count]
                blob = stored[f"{split}_jpeg"]
                pieces = [_decoded(blob, offsets[row : row + 2])[0] for row in rows]
                pixels = np.stack(pieces).transpose(0, 3, 1, 2)
                parts.append(_complete(pixels, np.eye(10)[labels[rows]], names, split))
        return Splits(train=parts[0], test=parts[1])
    return None


def recipe_of(job: Row) -> Recipe:
    classes = 6 if job["data"] == "radiographs" else 10
    method = METHODS[job["method"]] | {"positive_weight": "none", "weighting": "uniform"}
    training = {"lr": float(job["lr"]), "batch_size": int(job["batch"]), "epochs": 1}
    settings: dict[str, Any] = {
        "data": {"name": "digits-mosaic", "classes": 10, "train": 1400, "seed": int(job["seed"])},
        "partition": {"name": "iid", "clients": 5},
        "annotation": {"name": "missing", "missing": 2 if classes == 6 else 4},
        "views": {"weak": "plain"},
        "method": method | {"training": training},
        "rounds": int(job["rounds"]),
        "seed": int(job["seed"]),
        "evaluation": {"every": int(job["rounds"])},
        "checkpoint_every": int(job["rounds"]),
    }
    if job["epsilon"] != "none":
        settings["privacy"] = {
            "epsilon": float(job["epsilon"]),
            "delta": DELTA,
            "training": True,
            "clip": float(job["clip"]),
        }
    return recipe_from(settings)


def one_run(shared: Path, job: Row) -> Row:
    torch.set_num_threads(1)
    recipe, began = recipe_of(job), time.monotonic()
    splits = splits_of(job["data"], shared, int(job["seed"]))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run(recipe, folder / "run", cache=folder, splits=splits, engine="sequential")
        metrics = read_run(folder / "run").result["metrics"]
    found = {metric: round(100 * metrics[metric], 2) for metric in ("macro_auc", "map")}
    return {**found, "seconds": round(time.monotonic() - began, 1)}


def jobs_of(data: str, method: str, epsilons: Sequence[str], seeds: Sequence[int]) -> Jobs:
    """Jobs without a learning rate and a clip."""
    fixed = {"data": data, "method": method, "rounds": ROUNDS[data], "batch": BATCH}
    return [
        {**fixed, "epsilon": epsilon, "seed": seed} for seed, epsilon in product(seeds, epsilons)
    ]


def best_settings(rows: Jobs, job: Row) -> Row:
    """The learning rate and clip with the best AUC on the tuning seed."""
    same = ("data", "method", "rounds", "batch")
    kind = job["epsilon"] if job["epsilon"] == "none" else TUNED_AT
    tried = [
        row
        for row in rows
        if int(row["seed"]) == TUNING_SEED
        and row["epsilon"] == kind
        and all(str(row[column]) == str(job[column]) for column in same)
    ]
    best = max(tried, key=lambda row: float(row["macro_auc"]))
    return {"lr": float(best["lr"]), "clip": float(best["clip"])}


def summary(rows: Jobs) -> Jobs:
    """Mean and standard deviation over seeds, without the tuning seed."""
    found = []
    for data, method, epsilon in product(IMAGES, METHODS, EPSILONS):
        same = [
            row
            for row in rows
            if (row["data"], row["method"], row["epsilon"]) == (data, method, epsilon)
            and int(row["seed"]) != TUNING_SEED
        ]
        if not same:
            continue
        line: Row = {"data": data, "method": method, "epsilon": epsilon, "runs": len(same)}
        for name in ("macro_auc", "map", "seconds"):
            values = [float(row[name]) for row in same]
            line[name] = round(fmean(values), 2)
            line[f"{name}_deviation"] = round(stdev(values), 2) if len(values) > 1 else ""
        found.append(line | {name: same[0][name] for name in ("lr", "clip", "rounds", "batch")})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, default=Path("shared/data"))
    parser.add_argument("--data", nargs="+", choices=IMAGES, default=[*IMAGES])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=["fedavg-pl"])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1e9, help="start no run later")
    parser.add_argument("--out", type=Path, default=RESULTS / f"{NAME}_runs.csv")
    options = parser.parse_args()
    ends = time.monotonic() + options.seconds
    work = partial(one_run, options.shared)

    def rows_of(jobs: Jobs) -> Jobs:
        seconds = ends - time.monotonic()
        return pooled_rows(options.out, jobs, work, workers=options.workers, seconds=seconds)

    rows: Jobs = []
    for data, method in product(options.data, options.methods):
        grid = [
            job | {"lr": lr, "clip": clip}
            for job in jobs_of(data, method, ("none", TUNED_AT), [TUNING_SEED])
            for lr, clip in product(RATES, CLIPS if job["epsilon"] == TUNED_AT else CLIPS[:1])
        ]
        tuned = rows_of(grid)
        tries = [row for row in tuned if int(row["seed"]) == TUNING_SEED]
        if sum((row["data"], row["method"]) == (data, method) for row in tries) < len(grid):
            break  # no time was left, or a try failed
        rows = rows_of(
            [
                job | best_settings(tuned, job)
                for job in jobs_of(data, method, EPSILONS, SEEDS[data])
            ]
        )
    if rows and options.out == RESULTS / f"{NAME}_runs.csv":
        write_results(NAME, summary(rows))


if __name__ == "__main__":
    main()
