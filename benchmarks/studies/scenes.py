"""FedMLP on photographs, against FedAvg, FedAvg-PL and the full-label bound.

    python -m benchmarks.studies.scenes --data FOLDER --weights FILE

MIML scenes: 2,000 photographs, 5 classes, 5 clients that annotate one class each; 64 px; a
ResNet-18 pretrained on TinyImageNet. The learning rate is the best of three for FedAvg-PL with
random seed 100; FedMLP's own hyperparameters were not tuned.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.harness.result_csv import write_results
from benchmarks.harness.resumable_runs import Key, make_runs, summary
from fedquilt.recipes.recipe import Recipe, recipe_from, with_overrides

METHODS: dict[str, dict[str, Any]] = {
    "FedAvg, unannotated as negative": {"name": "fedavg"},
    "FedAvg-PL": {"name": "fedavg-pl"},
    "FedAvg-PL, annotators' head rows": {"name": "fedavg-pl", "head_rows": "annotated"},
    "FedMLP": {
        "name": "fedmlp",
        "warmup_rounds": 15,
        "negative_share": 0.03,
        "positive_share": 0.03,
        "rounding": "ceil",
    },
    "FedAvg, 100 % labels": {"name": "full-labels"},
}
DECAY = {
    "none": {},
    "coupled 5e-4": {"weight_decay": 5e-4, "decay": "coupled"},
    "decoupled 1e-2": {"weight_decay": 1e-2, "decay": "decoupled"},
    "coupled 5e-4, unannotated rows exempt": {
        "weight_decay": 5e-4,
        "decay": "coupled",
        "decay_unannotated_rows": False,
    },
}


def settings_for(
    options: argparse.Namespace, method: dict[str, Any], decay: dict[str, Any], seed: int
) -> dict[str, Any]:
    settings = {
        "data": {
            "name": "folder",
            "folder": str(options.data / "images"),
            "labels": str(options.data / "labels.csv"),
            "size": 64,
            "split_seed": seed,
        },
        "partition": {"name": "iid", "clients": 5},
        "annotation": {"name": "missing", "missing": 4, "one_to_one": True},
        "model": {"backbone": "resnet18", "weights": str(options.weights), "small_stem": True},
        "method": method | {"training": {"lr": 3e-5, "batch_size": 32} | decay},
        "rounds": 40,
        "seed": seed,
        "evaluation": {"every": 10},
        "checkpoint_every": 40,
    }
    return with_overrides(settings, options.set)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the folder miml_scenes")
    parser.add_argument("--weights", type=Path, required=True, help="the ResNet-18 safetensors")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, help="runs at a time (default: one per core)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--decay", nargs="+", choices=[*DECAY], default=["none"])
    parser.add_argument("--methods", nargs="+", choices=[*METHODS], default=[*METHODS])
    parser.add_argument("--set", action="append", default=[], help="as in fedquilt run --set")
    parser.add_argument(
        "--name", default="scenes", help="of the CSV file in benchmarks/results/studies"
    )
    options = parser.parse_args()
    cells = [(method, decay) for decay in options.decay for method in options.methods]
    wanted: dict[Key, Recipe] = {
        (("method", method), ("weight_decay", decay), ("seed", str(seed))): recipe_from(
            settings_for(options, METHODS[method], DECAY[decay], seed)
        )
        for method, decay in cells
        for seed in options.seeds
    }
    with tempfile.TemporaryDirectory() as cache:
        made = make_runs(
            f"studies/{options.name}",
            wanted,
            cache=Path(cache),
            device=options.device,
            workers=options.workers,
        )
    rows = [
        {"method": method, "weight_decay": decay}
        | summary([row for row in made if (row["method"], row["weight_decay"]) == (method, decay)])
        for method, decay in cells
    ]
    for row in rows:
        print({key: row[key] for key in ("method", "weight_decay", "macro_auc", "bacc", "map")})
    write_results(f"studies/{options.name}", rows, options.device)


if __name__ == "__main__":
    main()
