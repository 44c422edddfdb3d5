"""Ablation of FedLSM on digit mosaics: its Table 1 with one component changed at a time.

    python -m benchmarks.studies.fedlsm_ablation

Runs on a CPU. ``common`` mosaics follow the recipe: five classes, each in four of ten images.
``rare`` mosaics show one of ten classes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.harness.result_csv import write_results
from benchmarks.harness.resumable_runs import Key, make_runs, summaries
from fedquilt.recipes.papers.fedlsm import table1
from fedquilt.recipes.recipe import Recipe

DATA = {
    "common": (),
    "rare": (
        "data.classes=10",
        "data.digits_per_image=[1, 1]",
        "data.train=1000",
        "method.training.steps=16",
    ),
}
POOLS = {"common": (), "rare": ("method.uncertain_images=10", "method.certain_images=42")}
NOTHING_FILLED_IN = ("method.thresholds=[0, 1]", "method.uncertain_thresholds=[0, 1]")
SGD = (
    "method.training.optimizer=sgd",
    "method.training.lr=0.1",
    "method.training.momentum=0.9",
)
FEDAVG = "FedAvg*"
SETTINGS = {
    FEDAVG: (),
    "nothing filled in, plain view": (*NOTHING_FILLED_IN, "views.strong=plain"),
    "nothing filled in": NOTHING_FILLED_IN,
    "head rows over annotators": ("method.draw_counts=false",),
    "FedLSM": (),
    "nothing filled in, SGD": (*NOTHING_FILLED_IN, *SGD),
    "FedLSM, SGD": SGD,
}
IN_RARE = (FEDAVG, "nothing filled in", "head rows over annotators", "FedLSM")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--workers", type=int, help="runs at a time (default: one per core)")
    parser.add_argument("--cache", type=Path, default=Path(".cache/fedquilt"))
    options = parser.parse_args()
    table = table1("digits")
    places = [("common", name) for name in SETTINGS] + [("rare", name) for name in IN_RARE]
    wanted: dict[Key, Recipe] = {}
    for data, name in places:
        (cell,) = table.cells(["fedavg-star" if name == FEDAVG else "fedlsm"])
        own = () if name == FEDAVG else (*POOLS[data], *SETTINGS[name])
        for seed in options.seeds:
            facts = (("data", data), ("setting", name), ("seed", str(seed)))
            wanted[facts] = table.recipe(cell, seed, changes=(*DATA[data], *own))
    made = make_runs(
        "studies/fedlsm_ablation",
        wanted,
        cache=options.cache,
        device="cpu",
        workers=options.workers,
    )
    rows = summaries(made, ("data", "setting"), places)
    for row in rows:
        print({key: row[key] for key in ("data", "setting", "macro_auc", "macro_auc_deviation")})
    write_results("studies/fedlsm_ablation", rows)


if __name__ == "__main__":
    main()
