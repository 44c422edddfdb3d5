"""Seconds and bytes of a report, with 20 and with 1,628 classes and curves for each of them.

    python -m benchmarks.speed.report

The run folders are written by hand (``tests/support/report_folders``), with the scores of 2,000
test images, so that every class has its curves.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import benchmarks.correctness  # noqa: F401  # adds the tests' helpers to the path
from benchmarks.harness.result_csv import write_results
from fedquilt.metrics.evaluation import Evaluation
from fedquilt.reports.html.run_report import write_run_report
from fedquilt.runs.intervals import result_intervals
from fedquilt.runs.scores import Scores, write_scores

CLASSES = (20, 1_628)
IMAGES = 2_000


def make_scores(classes: tuple[str, ...]) -> Scores:
    random = np.random.default_rng(0)
    labels = random.random((IMAGES, len(classes))) < 0.05
    logits = random.standard_normal((IMAGES, len(classes)), dtype=np.float32) - 3 + 2 * labels
    return Scores(
        part="test",
        round=3,
        classes=classes,
        ids=tuple(map(str, range(IMAGES))),
        labels=labels.astype(np.uint8),
        known=np.ones_like(labels),
        logits={"global": logits.astype(np.float32)},
        patients=np.arange(IMAGES) // 2,
    )


def measure(count: int, folder: Path) -> dict[str, Any]:
    from support.report_folders import write_run_folder

    names = tuple(f"finding number {number}" for number in range(count))
    scores = make_scores(names)
    result = result_intervals(scores, Evaluation(), 0)
    run = write_run_folder(folder / str(count), names, result=result)
    write_scores(run, scores)
    write_run_report(run)  # once before, so that imports and templates are loaded
    began = time.perf_counter()
    page, _ = write_run_report(run)
    return {
        "classes": count,
        "test_images": IMAGES,
        "seconds": round(time.perf_counter() - began, 2),
        "bytes": page.stat().st_size,
    }


def main() -> None:
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for count in CLASSES:
            rows.append(measure(count, Path(scratch)))
            print(rows[-1], flush=True)
    write_results("speed/report", rows)


if __name__ == "__main__":
    main()
