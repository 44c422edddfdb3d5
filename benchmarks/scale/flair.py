"""A run in FLAIR's shape from start to report: its users, its classes, made-up images.

    python -m benchmarks.scale.flair --classes 17
    python -m benchmarks.scale.flair --classes 1628 --method fedlgt --device cuda --only-rounds

FLAIR has 51,414 users with 345,879 images in its training part, and 17 coarse or 1,628 fine
classes. Here a user's number of images is log-normal with that mean. Images are noise, so the run
shows what a run costs, not what a model learns.
"""

from __future__ import annotations

import argparse
import logging
import resource
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.harness.result_csv import Row, read_results, write_results
from benchmarks.scale.synthetic import Size, made_up
from fedquilt.data.source import Splits
from fedquilt.engines.options import NAMES, SLOTS, EngineOptions
from fedquilt.recipes.recipe import recipe_from
from fedquilt.reports.html.run_report import try_run_report
from fedquilt.reports.run_pictures import save_run_pictures
from fedquilt.runs import experiment
from fedquilt.runs.finished_run import read_run

RESULT = "scale/flair"
USERS, IMAGES_EACH = 51_414, 6.73
SPREAD = 1.2  # of the logarithm of a user's images


class Enough(Exception):
    """Raised after the last round, if only rounds are timed."""


def users_of(count: int) -> np.ndarray:
    """The user of each image: log-normal numbers of images, at least one each."""
    drawn = np.random.default_rng(0).lognormal(0.0, SPREAD, count)
    images = np.maximum(1, np.rint(drawn * IMAGES_EACH / np.exp(SPREAD**2 / 2))).astype(int)
    return np.repeat(np.arange(count), images)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=USERS)
    parser.add_argument("--classes", type=int, choices=[17, 1628], required=True)
    parser.add_argument("--pixels", type=int, default=16)
    parser.add_argument("--test-images", type=int, default=4000)
    parser.add_argument("--method", default="fedavg-pl")
    parser.add_argument("--backbone", default="small-cnn")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--cohort", type=int, default=50)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--engine", choices=NAMES, default="auto")
    parser.add_argument("--slots", type=int, default=SLOTS, help="clients at once on a GPU")
    parser.add_argument("--only-rounds", action="store_true", help="no result and no report")
    options = parser.parse_args()
    logging.basicConfig()  # the engine says what it does without
    began = time.perf_counter()
    size = Size(options.users, options.classes, 0, options.test_images, options.pixels)
    splits = made_up(size, users_of(options.users))
    made = time.perf_counter()
    cpu_before = time.process_time()
    marks: dict[str, float] = {}
    seconds: list[float] = []

    def observe(event: str, facts: dict[str, Any]) -> None:
        marks[event] = time.perf_counter()
        if event == "round":
            seconds.append(facts["seconds"])
            print(f"round {len(seconds)}: {seconds[-1]:.2f} s", flush=True)
            if options.only_rounds and len(seconds) == options.rounds:
                raise Enough

    recipe = recipe_from(
        {
            "data": {"name": "digits-mosaic"},  # not read: the run is given its images
            "partition": {"name": "natural", "by": "site"},
            "annotation": {"name": "recorded"},
            "model": {"backbone": options.backbone, "mean": [0.5], "std": [0.5]},
            "views": {"weak": "plain"},
            "method": {"name": options.method, "training": {"batch_size": 16, "epochs": 1}},
            "rounds": options.rounds,
            "cohort_size": options.cohort,
            "evaluation": {"every": options.rounds},
            "checkpoint_every": 5,
        }
    )
    engine = EngineOptions(options.engine, slots=options.slots)
    ends: Row = {}
    with tempfile.TemporaryDirectory() as name, suppress(Enough):
        folder = Path(name) / "run"
        experiment.run(
            recipe, folder, splits=splits, observe=observe, device=options.device, engine=engine
        )
        ends = report(folder, splits, marks, time.perf_counter() - made)
    later = sorted(seconds[1:]) or seconds
    row: Row = {
        "users": options.users,
        "images": len(splits.train),
        "classes": options.classes,
        "pixels": options.pixels,
        "test_images": options.test_images,
        "method": options.method,
        "backbone": options.backbone,
        "rounds": options.rounds,
        "cohort": options.cohort,
        "engine": options.engine,
        "slots": options.slots if options.device != "cpu" else "",
        "make_images_s": round(made - began, 1),
        "start_s": round(marks["begin"] - made, 1),
        "first_round_s": round(seconds[0], 2),
        "round_s": round(later[len(later) // 2], 3),
        "rounds_a_second": round(1 / later[len(later) // 2], 2),
        "cpu_s": round(time.process_time() - cpu_before, 1),
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "gpu_mb": torch.cuda.max_memory_allocated() // 2**20 if torch.cuda.is_available() else "",
        "torch_threads": torch.get_num_threads(),
        **ends,
    }
    print(row)
    write_results(RESULT, [row], options.device, earlier=read_results(RESULT))


def report(folder: Path, splits: Splits, marks: dict[str, float], trained_s: float) -> Row:
    """Write pictures and report; ``trained_s`` seconds went by before."""
    trained = time.perf_counter()
    run = read_run(folder)
    save_run_pictures(run, splits.train)
    complaint = try_run_report(folder)
    report_s = time.perf_counter() - trained
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {
        "finish_s": round(trained - marks["round"], 1),
        "report_s": round(report_s, 1),
        "start_to_report_s": round(trained_s + report_s, 1),
        "folder_mb": round(sum(path.stat().st_size for path in files) / 1e6, 1),
        "mb_up_a_round": round(run.result["bytes_up"] / 1e6 / len(run.history), 2),
        "complaint": complaint or "",
    }


if __name__ == "__main__":
    main()
