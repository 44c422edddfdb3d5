"""Seconds for all intervals of a model, and for the paired tests of two models.

    python -m benchmarks.speed.statistics

20 classes x 10,000 images, and 1,628 classes, on one core. Labels are rare (2 %), half of them are
annotated, and every patient has two images.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from benchmarks.harness.result_csv import write_results
from fedquilt.metrics.class_intervals import model_intervals
from fedquilt.metrics.labelled_images import LabelledImages
from fedquilt.reports.paired_tests import Contender, paired_tests
from fedquilt.runs.scores import Scores

SIZES = ((20, 10_000), (1_628, 10_000))


def make_scores(classes: int, images: int) -> tuple[Scores, Scores]:
    """Return the scores of two models; the second one's are a little noisier."""
    random = np.random.default_rng(0)
    labels = random.random((images, classes)) < 0.02
    known = random.random((images, classes)) < 0.5
    logits = random.standard_normal((images, classes), dtype=np.float32) - 3
    logits += 2 * labels
    others = logits + random.standard_normal((images, classes), dtype=np.float32)
    common: dict[str, Any] = {
        "part": "test",
        "round": 1,
        "classes": tuple(f"class {number}" for number in range(classes)),
        "ids": tuple(map(str, range(images))),
        "labels": (labels & known).astype(np.uint8),
        "known": known,
        "patients": np.arange(images) // 2,
    }
    one, other = (Scores(**common, logits={"global": each}) for each in (logits, others))
    return one, other


def measure(classes: int, images: int) -> dict[str, Any]:
    one, other = make_scores(classes, images)
    logits = one.logits["global"]
    began = time.perf_counter()
    pooled = LabelledImages.of(one.labels, one.known, one.patients)
    model_intervals(pooled, logits, logits >= 0, one.classes)
    done = time.perf_counter()
    tests = paired_tests(
        [
            Contender(name, {"0": scores}, {"0": None}, {})
            for name, scores in (("one", one), ("other", other))
        ]
    )
    assert len(tests[0].classes) == classes
    ended = time.perf_counter()
    return {
        "classes": classes,
        "images": images,
        "patients": pooled.patient_count,
        "intervals_seconds": round(done - began, 2),
        "paired_tests_seconds": round(ended - done, 2),
    }


def main() -> None:
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    rows = []
    for classes, images in SIZES:
        rows.append(measure(classes, images))
        print(rows[-1], flush=True)
    write_results("speed/statistics", rows)


if __name__ == "__main__":
    main()
