"""FedALC beside FedAwS where clients share images, and where none does.

    python -m benchmarks.studies.shared_images --data FOLDER

FedALC pulls the rows of two classes together as far as their clients hold the same images. With the
partition ``unique`` every image is at one client, so this part of its regulariser is zero; with
``replicate`` an image is at the clients of all its classes. Classical multi-label tables of Mulan
(``mulan_NAME.npz`` in FOLDER), a client per class that knows positives of it only, a network of two
hidden layers, SGD averaged after every step. The row "no correlation" is FedALC whose clients share
images that it does not know of: FedAwS with FedALC's settings.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch

from benchmarks.harness.result_csv import write_results
from benchmarks.harness.resumable_runs import METRICS, summaries
from fedquilt.data.source import Splits, complete_dataset
from fedquilt.recipes.recipe import recipe_from
from fedquilt.runs.experiment import run

TABLES = ("emotions", "scene", "yeast")
ROWS: dict[str, dict[str, Any]] = {
    "fedaws": {"name": "fedaws"},
    "no correlation": {"name": "fedaws", "spread_steps": 5},
    "fedalc": {"name": "fedalc"},
}
COLUMNS = ("data", "images", "method")


def table(folder: Path, name: str) -> tuple[dict[str, Any], Splits]:
    """The published split; features become bytes between their smallest and largest value."""
    with np.load(folder / f"mulan_{name}.npz") as stored:
        parts = [stored[f"{part}_features"] for part in ("train", "test")]
        labels = [stored[f"{part}_labels"] for part in ("train", "test")]
        classes = tuple(str(each) for each in stored["classes"])
    low, high = parts[0].min(0), parts[0].max(0)
    made = []
    for features, each in zip(parts, labels):
        scaled = ((features - low) / np.where(high > low, high - low, 1)).clip(0, 1)
        pixels = np.rint(scaled * 255).astype(np.uint8)[:, :, None, None]
        ids = tuple(f"{name} {number}" for number in range(len(each)))
        made.append(
            complete_dataset(torch.from_numpy(pixels), torch.from_numpy(each), classes, ids)
        )
    shape = [parts[0].shape[1], 1, 1]
    data = {"name": "given", "content": f"mulan_{name}", "classes": list(classes)}
    count = sum(map(len, labels))
    return {**data, "images": count, "shape": shape}, Splits(train=made[0], test=made[1])


def settings(data: Any, images: str, method: dict[str, Any], seed: int, rounds: int) -> Any:
    training = {"optimizer": "sgd", "lr": 0.3, "steps": 1, "batch_size": 32}
    return {
        "data": data,
        "partition": {"name": "positive-only", "images": images},
        "annotation": {"name": "full"},
        "model": {"backbone": "mlp"},
        "views": {"weak": "plain"},
        "method": {**method, "training": training},
        "rounds": rounds,
        "seed": seed,
        "evaluation": {"every": rounds},
        "checkpoint_every": rounds,
    }


def numbers(recipe: Any, splits: Splits) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch:
        folder = run(recipe, Path(scratch) / "run", engine="sequential", splits=splits)
        result = folder.read_json(folder.result)
    pairs = result.get("activity", {}).get("pairs of correlated classes", "")
    found = {metric: round(100 * result["metrics"][metric], 2) for metric in METRICS}
    return {**found, "pairs": pairs, "seconds": round(result["seconds"], 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of mulan_*.npz")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--rounds", type=int, default=300)
    options = parser.parse_args()
    rows = []
    for name in TABLES:
        data, splits = table(options.data, name)
        for images in ("unique", "replicate"):
            for method, own in ROWS.items():
                for seed in options.seeds:
                    recipe = recipe_from(settings(data, images, own, seed, options.rounds))
                    cell = dict(zip(COLUMNS, (name, images, method)))
                    rows.append({**cell, "seed": seed, **numbers(recipe, splits)})
                last = rows[-len(options.seeds) :]
                print(name, images, method, fmean(row["macro_auc"] for row in last), flush=True)
    cells = list(dict.fromkeys(tuple(row[each] for each in COLUMNS) for row in rows))
    found = summaries(rows, COLUMNS, cells)
    for row in found:
        row["rounds"] = options.rounds
        row["correlated_pairs"] = next(
            each["pairs"] for each in rows if all(each[name] == row[name] for name in COLUMNS)
        )
    write_results("studies/shared_images", found)


if __name__ == "__main__":
    main()
