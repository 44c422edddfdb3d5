"""The second start of ``fedquilt run --data`` beside the first, which decodes the images.

    python -m benchmarks.speed.second_start

A start is everything from the command to the first round: Python, torch, the label table, the
images and the clients. Both starts use one cache folder; each is a process of its own, ended when
its first round begins. Seconds by the clock and of the processor.
"""

from __future__ import annotations

import argparse
import csv
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.harness.result_csv import Row, write_results
from benchmarks.speed.predict import make_images

DIFFERENT = 50  # images; the others are the same files under other names
BEGINS = "clients,"  # in the line that ``run`` prints before its first round


def make_data(folder: Path, count: int, size: tuple[int, int]) -> Path:
    """Write the images and their labels; return the label table."""
    made = make_images(folder, size, "jpg", min(DIFFERENT, count))
    with (folder.parent / "labels.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["image", "site", "edema", "mass"])
        for number in range(count):
            name = f"{number:06d}.jpeg"
            os.link(made[number % len(made)], folder / name)
            rows.writerow([name, f"site {number % 4}", number % 2, int(number % 3 == 0)])
    return folder.parent / "labels.csv"


def start(data: Path, labels: Path, scratch: Path, out: str) -> tuple[float, float]:
    """Return the seconds to the first round, by the clock and of the processor."""
    command = [sys.executable, "-m", "fedquilt", "run", "--data", str(data)]
    command += ["--labels", str(labels), "--cache", str(scratch / "cache")]
    command += ["--out", str(scratch / out), "--set", "model.backbone=small-cnn"]
    began = time.perf_counter()
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert running.stdout is not None
    while BEGINS not in (line := running.stdout.readline()):
        if not line:
            raise RuntimeError("the run ended before its first round; see its message")
    seconds = time.perf_counter() - began
    running.send_signal(signal.SIGKILL)
    _, _, used = os.wait4(running.pid, 0)
    return seconds, used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, nargs="+", default=[400, 4000])
    parser.add_argument("--size", type=int, nargs=2, default=[2048, 1536], help="of the files")
    options = parser.parse_args()
    rows: list[Row] = []
    for count in options.images:
        with tempfile.TemporaryDirectory() as name:
            scratch = Path(name)
            labels = make_data(scratch / "images", count, tuple(options.size))
            first, first_cpu = start(scratch / "images", labels, scratch, "first")
            second, second_cpu = start(scratch / "images", labels, scratch, "second")
        rows.append(
            {
                "images": count,
                "file_pixels": "x".join(map(str, options.size)),
                "first_s": round(first, 2),
                "second_s": round(second, 2),
                "times_faster": round(first / second, 1),
                "first_cpu_s": round(first_cpu, 2),
                "second_cpu_s": round(second_cpu, 2),
                "times_fewer_cpu_s": round(first_cpu / second_cpu, 1),
            }
        )
        print(rows[-1], flush=True)
    write_results("speed/second_start", rows)


if __name__ == "__main__":
    main()
