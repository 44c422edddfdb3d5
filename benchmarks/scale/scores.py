"""Seconds and memory of ``score`` beside a bare float32 argsort of the same scores.

python -m benchmarks.scale.scores --images 40000 --classes 1628
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import torch

from benchmarks.scale.one_run import peak_megabytes
from fedquilt.metrics import score

REPEATS = 3


def measure(images: int, classes: int) -> dict[str, float]:
    generator = torch.Generator().manual_seed(0)
    probabilities = torch.rand(images, classes, generator=generator)
    labels = torch.empty(images, classes, dtype=torch.uint8)  # without a peak of its own
    labels.bernoulli_(0.02, generator=generator)
    known = torch.ones(images, classes, dtype=torch.bool)
    names = [f"class {number}" for number in range(classes)]
    sorting, scoring = [], []
    before, memory = peak_megabytes(), 0
    for repeat in range(REPEATS):  # in turn, so that both meet the same load
        began = time.process_time()
        score(probabilities, labels, known, names)
        scored = time.process_time()
        if not repeat:  # later the peak is that of sorting
            memory = peak_megabytes() - before
        for columns in probabilities.T.contiguous().split(16):  # memory is not what is compared
            columns.argsort(dim=1, descending=True)
        ended = time.process_time()
        scoring.append(scored - began)
        sorting.append(ended - scored)
        if scored - began > 20:  # once is enough
            break
    return {
        "score_cpu_s": round(statistics.median(scoring), 3),
        "argsort_cpu_s": round(statistics.median(sorting), 3),
        "ratio": round(statistics.median(scoring) / statistics.median(sorting), 2),
        "memory_mb": memory,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, required=True)
    parser.add_argument("--classes", type=int, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(json.dumps(measure(options.images, options.classes)))


if __name__ == "__main__":
    main()
