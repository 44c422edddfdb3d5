"""One run of a size, taken apart: CPU seconds of its steps, memory and disk, as JSON.

    python -m benchmarks.scale.one_run --clients 1000 --classes 17

``benchmarks.scale.growth`` starts it in a process of its own for every size, so that memory is this
run's, and can start it with the code of another commit.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.scale.synthetic import Size, made_up
from fedquilt.engines.sequential import SequentialEngine
from fedquilt.recipes.recipe import Recipe, recipe_from
from fedquilt.reports.html.run_report import try_run_report
from fedquilt.reports.run_pictures import save_run_pictures
from fedquilt.runs import experiment
from fedquilt.runs.checkpoint import Checkpoints
from fedquilt.runs.finished_run import read_run

COHORT = 50


class Stopwatch:
    """Seconds by name, of functions that it is put around."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = defaultdict(list)

    def around(self, owner: Any, function: str, name: str) -> None:
        wrapped: Callable[..., Any] = getattr(owner, function)

        def timed(*given: Any, **named: Any) -> Any:
            began = time.process_time()
            try:
                return wrapped(*given, **named)
            finally:
                self.seconds[name].append(time.process_time() - began)

        setattr(owner, function, timed)


def recipe_of(method: str, rounds: int, backbone: str) -> Recipe:
    return recipe_from(
        {
            "data": {"name": "digits-mosaic"},  # not read: the run is given its images
            "partition": {"name": "natural", "by": "site"},
            "annotation": {"name": "recorded"},
            "model": {"backbone": backbone, "mean": [0.5], "std": [0.5]},
            "views": {"weak": "plain"},
            "method": {"name": method, "training": {"batch_size": 8, "epochs": 1}},
            "rounds": rounds,
            "cohort_size": COHORT,
            "evaluation": {"every": rounds - 1},  # one round before the last
        }
    )


def measure(size: Size, method: str, rounds: int, backbone: str, folder: Path) -> dict[str, Any]:
    """Run to the report and return what each step took."""
    splits = made_up(size)
    watch = Stopwatch()
    marks: dict[str, float] = {}
    watch.around(SequentialEngine, "exchange", "round")
    watch.around(Checkpoints, "save", "save")
    watch.around(experiment._Run, "_evaluate", "evaluation")
    before = peak_megabytes()
    began = time.process_time()

    def observe(event: str, _facts: dict[str, Any]) -> None:
        marks[event] = time.process_time()

    recipe = recipe_of(method, rounds, backbone)
    experiment.run(recipe, folder, splits=splits, observe=observe, engine="sequential")
    trained = time.process_time()
    save_run_pictures(read_run(folder), splits.train)
    complaint = try_run_report(folder)
    reported = time.process_time()
    return {
        "start_s": round(marks["begin"] - began, 3),
        "round_s": round(min(watch.seconds["round"]), 3),
        "evaluations": len(watch.seconds["evaluation"]),
        "evaluation_s": round(max(watch.seconds["evaluation"]), 3),
        "save_s": round(min(watch.seconds["save"]), 3),
        "finish_s": round(trained - marks["round"], 3),
        "report_s": round(reported - trained, 3),
        "whole_s": round(reported - began, 3),
        "complaint": complaint or "",
        "memory_before_mb": before,
        "memory_mb": peak_megabytes() - before,
        "result_kb": round((folder / "result.json").stat().st_size / 1e3),
        "folder_mb": round(bytes_in(folder) / 1e6, 1),
        "pictures_mb": round(bytes_in(folder / "pictures") / 1e6, 2),
        "largest_picture": largest_picture(folder / "pictures"),
    }


def bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def largest_picture(folder: Path) -> str:
    """The width and height of the largest PNG, read from its header."""
    headers = [path.read_bytes()[16:24] for path in folder.glob("*.png")]
    sizes = [(int.from_bytes(each[:4], "big"), int.from_bytes(each[4:], "big")) for each in headers]
    width, height = max(sizes, key=lambda size: size[0] * size[1], default=(0, 0))
    return f"{width}x{height}"


def peak_megabytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, required=True)
    parser.add_argument("--classes", type=int, default=Size(1).classes)
    parser.add_argument("--images-each", type=int, default=Size(1).images_each)
    parser.add_argument("--test-images", type=int, default=Size(1).test_images)
    parser.add_argument("--pixels", type=int, default=Size(1).pixels)
    parser.add_argument("--method", default="fedavg-pl")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--backbone", default="small-cnn")
    options = parser.parse_args()
    torch.set_num_threads(1)
    size = Size(
        options.clients, options.classes, options.images_each, options.test_images, options.pixels
    )
    with tempfile.TemporaryDirectory() as folder:
        found = measure(
            size, options.method, options.rounds, options.backbone, Path(folder) / "run"
        )
    print(json.dumps(found))


if __name__ == "__main__":
    main()
