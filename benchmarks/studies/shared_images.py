"""FedALC beside FedAwS where clients share images, and where none does.

    python -m benchmarks.studies.shared_images --data FOLDER --weights FILE

FedALC pulls the rows of two classes together as far as their clients hold the same images. With the
partition ``unique`` every image is at one client, so this part of its regulariser is zero; with
``replicate`` an image is at the clients of all its classes. Classical multi-label tables of Mulan
(``mulan_NAME.npz`` in FOLDER) and photographs (``miml_scenes`` there, 64 px) as the features that a
ResNet-18 with the weights of FILE has of them. A client per class that knows positives of it only,
a network of two hidden layers, SGD averaged after every step. The row "no correlation" is FedALC
whose clients share images that it does not know of: FedAwS with FedALC's settings.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.harness.result_csv import read_results, write_results
from benchmarks.harness.resumable_runs import METRICS
from fedquilt.data.source import Splits, complete_dataset
from fedquilt.data.sources.folder.load import Folder
from fedquilt.models.spec import ModelSpec
from fedquilt.recipes.recipe import recipe_from
from fedquilt.runs.experiment import run

TABLES = ("emotions", "scene", "yeast")
PHOTOGRAPHS = "photographs"
ROWS: dict[str, dict[str, Any]] = {
    "fedaws": {"name": "fedaws"},
    "no correlation": {"name": "fedaws", "spread_steps": 5},
    "fedalc": {"name": "fedalc"},
}
IMAGES = ("unique", "replicate")
KEY = ("data", "images", "method", "rounds", "seed")  # a run in the file is not repeated
NAME = "studies/shared_images"


def table(folder: Path, name: str) -> tuple[dict[str, Any], Splits]:
    """The published split."""
    with np.load(folder / f"mulan_{name}.npz") as stored:
        features = [stored[f"{part}_features"] for part in ("train", "test")]
        labels = [torch.from_numpy(stored[f"{part}_labels"]) for part in ("train", "test")]
        classes = tuple(str(each) for each in stored["classes"])
    return given(f"mulan_{name}", features, labels, classes)


def photographs(folder: Path, weights: Path) -> tuple[dict[str, Any], Splits]:
    place = folder / "miml_scenes"
    source = Folder(folder=str(place / "images"), labels=str(place / "labels.csv"), size=64)
    with tempfile.TemporaryDirectory() as cache:
        splits = source.load(Path(cache))
    spec = ModelSpec(backbone="resnet18", weights=str(weights), small_stem=True)
    backbone = spec.build(channels=3, class_count=1, seed=0).backbone.eval()
    parts = (splits.train, splits.test)
    with torch.no_grad():
        features = [
            torch.cat([backbone(batch / 127.5 - 1) for batch in part.images.split(100)]).numpy()
            for part in parts
        ]
    return given(PHOTOGRAPHS, features, [part.labels for part in parts], splits.train.classes)


def given(
    name: str,
    features: Sequence[npt.NDArray[Any]],
    labels: Sequence[torch.Tensor],
    classes: tuple[str, ...],
) -> tuple[dict[str, Any], Splits]:
    """The recipe's words for training and test data; features become bytes of the same range."""
    low, high = features[0].min(0), features[0].max(0)
    made = []
    for part, each in zip(features, labels):
        scaled = ((part - low) / np.where(high > low, high - low, 1)).clip(0, 1)
        pixels = np.rint(scaled * 255).astype(np.uint8)[:, :, None, None]
        ids = tuple(f"{name} {number}" for number in range(len(each)))
        made.append(complete_dataset(torch.from_numpy(pixels), each, classes, ids))
    shape = [features[0].shape[1], 1, 1]
    data = {"name": "given", "content": name, "classes": list(classes)}
    splits = Splits(train=made[0], test=made[1])
    return {**data, "images": sum(map(len, labels)), "shape": shape}, splits


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
    parser.add_argument("--data", type=Path, required=True, help="folder of both kinds of data")
    parser.add_argument("--weights", type=Path, required=True, help="of a ResNet-18, .safetensors")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    rows = read_results(NAME)
    new: list[dict[str, Any]] = []
    finished = {tuple(row[each] for each in KEY) for row in rows}
    for name in (*TABLES, PHOTOGRAPHS):
        if name == PHOTOGRAPHS:
            data, splits = photographs(options.data, options.weights)
        else:
            data, splits = table(options.data, name)
        for seed, images, method in itertools.product(options.seeds, IMAGES, ROWS):
            key = (name, images, method, str(options.rounds), str(seed))
            if key in finished:
                continue
            recipe = recipe_from(settings(data, images, ROWS[method], seed, options.rounds))
            row = {**dict(zip(KEY, key)), **numbers(recipe, splits)}
            print(*key, row["macro_auc"], flush=True)
            new.append(row)
    write_results(NAME, new, earlier=rows)


if __name__ == "__main__":
    main()
