"""A run in FLAIR's shape from start to report: its users, its classes, made-up images.

    python -m benchmarks.scale.flair --classes 17
    python -m benchmarks.scale.flair --classes 1628 --method fedlgt --device cuda

FLAIR has 51,414 users with 345,879 images in its training part, and 17 coarse or 1,628 fine
classes. Here a user's number of images is log-normal with that mean. Images are noise, so the run
shows what a run costs, not what a model learns.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.harness.result_csv import Row, read_results, write_results
from benchmarks.scale.synthetic import Size, made_up
from fedquilt.recipes.recipe import recipe_from
from fedquilt.reports.html.run_report import try_run_report
from fedquilt.reports.run_pictures import save_run_pictures
from fedquilt.runs import experiment
from fedquilt.runs.finished_run import read_run

RESULT = "scale/flair"
USERS, IMAGES_EACH = 51_414, 6.73
SPREAD = 1.2  # of the logarithm of a user's images


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
    options = parser.parse_args()
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
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        experiment.run(recipe, folder, splits=splits, observe=observe, device=options.device)
        trained = time.perf_counter()
        run = read_run(folder)
        save_run_pictures(run, splits.train)
        complaint = try_run_report(folder)
        ended = time.perf_counter()
        files = [path for path in folder.rglob("*") if path.is_file()]
        megabytes = sum(path.stat().st_size for path in files) / 1e6
        sent = run.result["bytes_up"]
    later = sorted(seconds[1:])
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
        "make_images_s": round(made - began, 1),
        "start_s": round(marks["begin"] - made, 1),
        "first_round_s": round(seconds[0], 2),
        "round_s": round(later[len(later) // 2], 3),
        "rounds_a_second": round(1 / later[len(later) // 2], 2),
        "finish_s": round(trained - marks["round"], 1),
        "report_s": round(ended - trained, 1),
        "start_to_report_s": round(ended - made, 1),
        "cpu_s": round(time.process_time() - cpu_before, 1),
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "folder_mb": round(megabytes, 1),
        "mb_up_a_round": round(sent / 1e6 / options.rounds, 2),
        "complaint": complaint or "",
        "torch_threads": torch.get_num_threads(),
    }
    print(row)
    write_results(RESULT, [row], options.device, earlier=read_results(RESULT))


if __name__ == "__main__":
    main()
