"""What do lying clients do, without and with a robust rule? All attacks, five seeds.

    python -m benchmarks.studies.attacks --workers 4

Digits mosaic, FedAvg-PL with head rows by annotators, 20 rounds. Five sites of 100 images annotate
3 of 5 classes each, so three annotate a class; the first site lies (two, in ``collude``). The rules
expect one liar; ``krum, wrong f`` expects two.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch

from benchmarks.harness.pooled_rows import pooled_rows
from benchmarks.harness.result_csv import RESULTS, Row, write_results
from fedquilt.privacy.attacks import ATTACKS
from fedquilt.recipes.recipe import Recipe, recipe_from
from fedquilt.runs.attack_bench import NOBODY, attack_bench
from fedquilt.runs.experiment import run
from fedquilt.runs.finished_run import read_run

NAME = "studies/attacks"
RULES: dict[str, dict[str, Any]] = {
    "none": {"rule": "none"},
    "median": {"rule": "median"},
    "trimmed": {"rule": "trimmed", "liars": 1},
    "centered-clip": {"rule": "centered-clip"},
    "krum": {"rule": "krum", "liars": 1},
    "krum, wrong f": {"rule": "krum", "liars": 2},
}
MEASURED = ("mean_auc", "worst_auc", "backdoor_auc")


def recipe_of(rule: str, seed: int) -> Recipe:
    training = {"lr": 3e-3, "batch_size": 20, "epochs": 2}
    return recipe_from(
        {
            "data": {"name": "digits-mosaic", "classes": 5, "train": 500, "seed": seed},
            "partition": {"name": "iid", "clients": 5},
            "annotation": {"name": "missing", "missing": 2},
            "views": {"weak": "plain"},
            "method": {"name": "fedavg-pl", "head_rows": "annotators", "training": training},
            "rounds": 20,
            "seed": seed,
            "robust": RULES[rule],
            "evaluation": {"every": 20},
            "checkpoint_every": 20,
        }
    )


def one_run(job: Row) -> Row:
    torch.set_num_threads(1)
    recipe, began = recipe_of(job["rule"], int(job["seed"])), time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if job["attack"] == NOBODY:
            run(recipe, folder / "run", cache=folder, engine="sequential")
            (report,) = read_run(folder / "run").result["reports"].values()
            aucs = report["per_class"]["auc"]
            found: Row = {"mean_auc": fmean(aucs), "worst_auc": min(aucs), "backdoor_auc": ""}
            found |= {"refused": 0, "dropped": 0, "dropped_honest": 0, "ended": ""}
        else:
            liars = 2 if job["attack"] == "collude" else 1
            (cell,) = attack_bench(
                recipe, folder / "bench", attack=job["attack"], malicious=liars, clean=False
            )
            found = {each: getattr(cell, each) for each in (*MEASURED, *COUNTED)}
            found["ended"] = cell.error or ""
    numbers = {
        key: round(value, 4) if isinstance(value, float) else "" if value is None else value
        for key, value in found.items()
    }
    return {**numbers, "seconds": round(time.monotonic() - began, 1)}


COUNTED = ("refused", "dropped", "dropped_honest")


def summary(rows: Sequence[Row]) -> list[Row]:
    """Mean and standard deviation over seeds, for every attack and rule."""
    found = []
    for attack, rule in product([NOBODY, *ATTACKS], RULES):
        same = [row for row in rows if (row["attack"], row["rule"]) == (attack, rule)]
        if not same:
            continue
        line: Row = {"attack": attack, "rule": rule, "runs": len(same)}
        line["ended_early"] = sum(bool(row["ended"]) for row in same)
        for name in MEASURED:
            values = [float(row[name]) for row in same if row[name] != ""]
            line[name] = round(fmean(values), 3) if values else ""
            line[f"{name}_deviation"] = round(stdev(values), 3) if len(values) > 1 else ""
        for name in COUNTED:
            line[name] = round(fmean(float(row[name]) for row in same), 1)
        found.append(line)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attacks", nargs="+", default=[NOBODY, *ATTACKS])
    parser.add_argument("--rules", nargs="+", choices=RULES, default=[*RULES])
    parser.add_argument("--seeds", type=int, nargs="+", default=[21, 22, 23, 24, 25])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1e9, help="start no run later")
    parser.add_argument("--out", type=Path, default=RESULTS / f"{NAME}_runs.csv")
    options = parser.parse_args()
    jobs = [
        {"attack": attack, "rule": rule, "seed": seed}
        for seed, attack, rule in product(options.seeds, options.attacks, options.rules)
    ]
    rows = pooled_rows(options.out, jobs, one_run, workers=options.workers, seconds=options.seconds)
    if options.out == RESULTS / f"{NAME}_runs.csv":
        write_results(NAME, summary(rows))


if __name__ == "__main__":
    main()
