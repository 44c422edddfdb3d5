"""The benchmark methods compared on photographs.

    python -m benchmarks.studies.methods_compared --data scenes=FOLDER cifar10=FOLDER --weights FILE

Every method runs in the setting it was designed for, beside the baselines of that setting, and in
the missing-class setting. All train a ResNet-18 from the same pretrained weights at 64 px for the
same number of steps with batches of 32. Rounds are one epoch of Adam. Clients that hold positives
of a single class aggregate after every SGD step instead, as FedAwS requires. Only the learning
rate of that SGD was tuned, for FedAwS with random seed 100.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.result_csv import write_results
from benchmarks.harness.resumable_runs import make_runs, summaries
from fedquilt.recipes.recipe import Recipe, recipe_from, with_overrides

CLASSES = {"scenes": 5, "cifar10": 10}
ROUNDS = {"scenes": 20, "cifar10": 10}  # of one epoch
STEPS = {"scenes": 200, "cifar10": 150}  # of a client over all rounds
IN_EPOCHS = {"optimizer": "adam", "lr": 1e-4, "epochs": 1}
STEP_BY_STEP = {"optimizer": "sgd", "lr": 0.3, "steps": 1}
FULL = {"name": "full"}
MISSING = "missing classes"
POSITIVES = "positives only"
SHARED = "positives only, images shared"  # by the clients of all their classes, as FedALC needs
STEPWISE = ("fedaws", "fedalc")  # in every setting

STUDIED: dict[str, dict[str, Any]] = {
    "fedlsm": {},
    "fednca-ml": {},
    "fedlgt": {},
    "fedc-tran": {},
    "fpsl": {},
    "flag": {},
    "fedaws": {},
    "fedalc": {},
    "scene-gcn": {},
    "site-aware": {},
}
BASELINES: dict[str, dict[str, Any]] = {
    "fedavg": {},
    "fedavg-pl": {},
    "fedmlp": {"negative_share": 0.03, "positive_share": 0.03, "rounding": "ceil"},
}

# Setting: the methods designed for it, then the baselines.
DESIGNED_FOR = {
    "identified classes": ("fedlsm", "fedavg", "fedavg-pl", "fedmlp"),
    "one class each": ("fpsl", "fedavg", "fedavg-pl", "fedmlp"),
    "Dirichlet, half of the classes": ("fednca-ml", "fedavg"),
    "even, all labels": ("fedlgt", "fedc-tran", "fedavg"),
    "K-modes, all labels": ("flag", "fedavg"),
    POSITIVES: ("fedaws", "fedavg", "fedavg-pl"),
    SHARED: ("fedalc", "fedaws", "fedavg", "fedavg-pl"),
    "Dirichlet, all labels": ("scene-gcn", "site-aware", "fedavg"),
}


def partition_and_annotation(setting: str, classes: int) -> dict[str, Any]:
    """Return the recipe settings of a setting, with one client per class."""
    even = {"name": "iid", "clients": classes}
    skewed = {"clients": classes, "concentration": 0.5}
    missing = {"name": "missing", "missing": 3 * classes // 5 + 1 if classes > 5 else 3}
    settings: dict[str, dict[str, Any]] = {
        MISSING: {"partition": even, "annotation": missing},
        "identified classes": {
            "partition": even,
            "annotation": {"name": "identified", "identified": 3 if classes > 5 else 2},
        },
        "one class each": {
            "partition": even,
            "annotation": {"name": "missing", "missing": classes - 1, "one_to_one": True},
        },
        "Dirichlet, half of the classes": {
            "partition": {"name": "dirichlet-presence", "presence_share": 0.5, **skewed},
            "annotation": FULL,
        },
        "even, all labels": {"partition": even, "annotation": FULL},
        "K-modes, all labels": {
            "partition": {"name": "k-modes", "clients": classes},
            "annotation": FULL,
        },
        POSITIVES: {"partition": {"name": "positive-only"}, "annotation": FULL},
        SHARED: {
            "partition": {"name": "positive-only", "images": "replicate"},
            "annotation": FULL,
        },
        "Dirichlet, all labels": {
            "partition": {"name": "dirichlet", **skewed},
            "annotation": FULL,
        },
    }
    return settings[setting]


def data_of(name: str, folder: Path, seed: int) -> dict[str, Any]:
    if name == "scenes":
        files = {"folder": str(folder / "images"), "labels": str(folder / "labels.csv")}
        return {"name": "folder", **files, "size": 64, "split_seed": seed}
    size = {"singles": 400, "pairs": 20, "test_singles": 200, "test_pairs": 10}
    return {"name": "cifar10-composites", "folder": str(folder), **size, "seed": seed}


def recipe_for(
    options: argparse.Namespace,
    data: str,
    setting: str,
    method: str,
    seed: int,
    changes: Sequence[str] = (),
) -> Recipe:
    is_stepwise = setting in (POSITIVES, SHARED) or method in STEPWISE
    rounds = STEPS[data] if is_stepwise else ROUNDS[data]
    training = STEP_BY_STEP if is_stepwise else IN_EPOCHS
    own = STUDIED.get(method, BASELINES.get(method, {}))
    own = own | ({"warmup_rounds": rounds // 2} if method == "fedmlp" else {})
    settings = {
        "data": data_of(data, options.data[data], seed),
        **partition_and_annotation(setting, CLASSES[data]),
        "model": {"backbone": "resnet18", "weights": str(options.weights), "small_stem": True},
        "method": {
            "name": method,
            **own,
            "training": {"batch_size": 32, "precision": options.precision, **training},
        },
        "rounds": rounds,
        "seed": seed,
        "evaluation": {"every": rounds},
        "checkpoint_every": rounds,
    }
    return recipe_from(with_overrides(settings, changes))


def cells(data: list[str], only: list[str] | None) -> list[tuple[str, str, str]]:
    """Return (data, setting, method), the missing-class setting last."""
    wanted = [
        (each, setting, method)
        for each in data
        for setting, methods in [*DESIGNED_FOR.items(), (MISSING, (*STUDIED, *BASELINES))]
        for method in methods
    ]
    return [cell for cell in wanted if only is None or cell[2] in only or cell[1] in only]


def common_options(about: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument(
        "--data", nargs="+", type=_named_folder, required=True, help="scenes=FOLDER, cifar10=FOLDER"
    )
    parser.add_argument("--weights", type=Path, required=True, help="the ResNet-18 safetensors")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--workers", type=int, help="runs at a time (default: one per core)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--cache", type=Path, default=Path(".cache/fedquilt"))
    return parser


def _named_folder(text: str) -> tuple[str, Path]:
    name, _, folder = text.partition("=")
    return name, Path(folder)


def main() -> None:
    parser = common_options(__doc__)
    parser.add_argument("--only", nargs="+", help="these methods or settings")
    parser.add_argument("--set", action="append", default=[], help="as in fedquilt run --set")
    parser.add_argument("--name", default="methods_compared", help="of the CSV file")
    options = parser.parse_args()
    options.data = dict(options.data)
    chosen = cells(list(options.data), options.only)
    if not chosen:
        parser.error(f"--only: no method or setting is called {' or '.join(options.only)}")
    columns = ("data", "setting", "method")
    wanted = {
        tuple(zip((*columns, "seed"), (*cell, str(seed)))): recipe_for(
            options, *cell, seed, options.set
        )
        for seed in options.seeds  # the first seed's whole table before the next seed
        for cell in chosen
    }
    made = make_runs(
        f"studies/{options.name}",
        wanted,
        cache=options.cache,
        device=options.device,
        workers=options.workers,
    )
    rows = summaries(made, columns, chosen)
    for row in rows:
        print(*(row[name] for name in (*columns, "runs", "macro_auc")))
    write_results(f"studies/{options.name}", rows, options.device)


if __name__ == "__main__":
    main()
