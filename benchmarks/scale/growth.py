"""How costs grow with clients, classes and test images, and the exponent of each.

    python -m benchmarks.scale.growth --label now
    python -m benchmarks.scale.growth --label before --code OTHER_CHECKOUT

Every size is a process of its own. Seconds are of the processor, on one thread, so that other load
hardly matters; waiting for a disk is not in them. The exponent of a cost is fitted to the three
largest sizes of a sweep: 1 is linear, 0 does not grow.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.harness.result_csv import Row, read_results, write_results

RESULT, EXPONENTS = "scale/growth", "scale/exponents"
SWEEPS: dict[str, tuple[str, str, list[int], dict[str, int]]] = {
    # name: (program, what grows, its sizes, what stays)
    "clients": ("one_run", "clients", [10, 100, 1000, 10_000, 51_414], {}),
    "classes": ("one_run", "classes", [14, 100, 400, 1628], {"clients": 1000}),
    "test images": ("one_run", "test_images", [10_000, 30_000, 100_000], {"clients": 1000}),
    "states": ("states", "clients", [1000, 10_000, 51_414], {}),
    "scores by images": ("scores", "images", [10_000, 30_000, 100_000], {"classes": 17}),
    "scores by classes": ("scores", "classes", [100, 400, 1628], {"images": 40_000}),
}
LEAST = 0.02  # of a cost at its largest size; below, an exponent would be one of noise
FITTED = 3  # sizes


def measure(program: str, sizes: dict[str, int], code: Path | None, limit: float) -> Row:
    options = [f"--{name.replace('_', '-')}={value}" for name, value in sizes.items()]
    paths = ([] if code is None else [str(code / "src")]) + [str(Path.cwd())]
    found = subprocess.run(
        [sys.executable, "-m", f"benchmarks.scale.{program}", *options],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        timeout=limit,
        check=True,
    )
    row: Row = json.loads(found.stdout.decode().splitlines()[-1])
    return row


def exponent(sizes: list[float], costs: list[float]) -> float | None:
    """The slope of log(cost) over log(size), by least squares."""
    if len(sizes) < 2 or min(costs) <= 0:
        return None
    x, y = [math.log(size) for size in sizes], [math.log(cost) for cost in costs]
    middle = sum(x) / len(x)
    return sum((a - middle) * b for a, b in zip(x, y)) / sum((a - middle) ** 2 for a in x)


def exponents(rows: list[Row]) -> list[Row]:
    """One row for each sweep and cost: its values and exponents, before and now."""
    found = []
    for name, (_, grows, _, _) in SWEEPS.items():
        of_sweep = [row for row in rows if row["sweep"] == name]
        costs = {cost for row in of_sweep for cost, value in row.items() if is_cost(cost, value)}
        for cost in sorted(costs):
            line: Row = {"sweep": name, "grows": grows, "cost": cost}
            for label in ("before", "now"):
                pairs = sorted(
                    (float(row[grows]), float(row[cost]))
                    for row in of_sweep
                    if row["label"] == label and row.get(cost) not in (None, "")
                )
                if not pairs:
                    continue
                largest = pairs[-FITTED:]
                fitted = exponent([size for size, _ in largest], [value for _, value in largest])
                is_small = cost.endswith("_s") and pairs[-1][1] < LEAST
                shown = fitted is not None and not is_small
                line[f"{label}_at"] = f"{pairs[-1][0]:.0f}"
                line[f"{label}_largest"] = pairs[-1][1]
                line[f"{label}_exponent"] = f"{fitted:.2f}" if shown else ""
            found.append(line)
    return found


def is_cost(name: str, value: Any) -> bool:
    return name.endswith(("_s", "_mb", "_kb")) and value not in (None, "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--label", choices=["before", "now"], required=True)
    parser.add_argument("--code", type=Path, help="a checkout whose src to measure; default: this")
    parser.add_argument("--sweeps", nargs="+", choices=list(SWEEPS), default=list(SWEEPS))
    parser.add_argument("--limit", type=float, default=300, help="seconds of a size at most")
    options = parser.parse_args()
    again = [
        row
        for row in read_results(RESULT)
        if (row["label"], row["sweep"]) not in {(options.label, name) for name in options.sweeps}
    ]
    rows: list[Row] = []
    for name in options.sweeps:
        program, grows, sizes, fixed = SWEEPS[name]
        for size in sizes:
            case = {"sweep": name, "label": options.label, grows: size, **fixed}
            try:
                found = measure(program, {grows: size, **fixed}, options.code, options.limit)
            except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as error:
                found = {"complaint": f"{type(error).__name__}, limit {options.limit:g} s"}
            rows.append(case | found)
            print(rows[-1], flush=True)
            every = write_results(RESULT, rows, earlier=again)
    write_results(EXPONENTS, exponents([*again, *every]))


if __name__ == "__main__":
    main()
