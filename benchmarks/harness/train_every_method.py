"""Train every method for three rounds, by the public names of whichever fedquilt is imported.

python benchmarks/harness/train_every_method.py train|resume|open FOLDER

``train`` leaves a finished run and one that was killed after its second round, per method and case;
``resume`` finishes the killed ones; ``open`` evaluates the finished ones, predicts with them and
compares each with the first on the same images. All print one JSON line per run. ``same_models``
starts this file with the sources of two commits, so it imports nothing else of the repository.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from typer.testing import CliRunner

import fedquilt
from fedquilt.cli.main import app
from fedquilt.methods import METHODS

TRAINING = {"batch_size": 8, "lr": 1e-3, "epochs": 1}
# Short warm-ups and small pools, so that three rounds reach every stage of a method.
SHORT: dict[str, dict[str, Any]] = {
    # Said here because a training table used to reset it (see Fixed in the changelog).
    "centralised": {"training": {**TRAINING, "keep_optimizer": True}},
    "cbafed": {"warmup_rounds": 1},
    "fedirm": {"warmup_rounds": 1},
    "fedlsm": {"uncertain_images": 6, "certain_images": 8},
    "fedmlp": {"warmup_rounds": 1, "rounding": "ceil"},
    "fedpu": {"prior": [0.2]},
    "flexible-fl": {"shared_rounds": 2},
    "fssl": {"labelled_weight": 0.7},
    "site-aware": {"branch_steps": 3, "joint_steps": 4},
    "surgical-aggregation": {"head_steps": 2},
}
FURTHER: dict[str, dict[str, dict[str, Any]]] = {
    "fedavg": {"momentum": {"server_step": {"lr": 0.9, "momentum": 0.5}, "head_rows": "annotated"}},
    "fedaws": {"momentum": {"server_step": {"momentum": 0.5}}},
    "fedcurv": {"momentum": {"server_step": {"momentum": 0.5}}},
    "fedlsm": {"no-draws": {"draw_counts": False}},
    "fedmlp": {"ablated": {"adaptive_threshold": False, "prototype_weights": "clients"}},
    "fednoro": {"distance-aware": {"distance_aware": True}},
    "flexible-fl": {"momentum": {"server_step": {"momentum": 0.5}}},
    "scene-gcn": {"momentum": {"server_step": {"momentum": 0.5}}},
    "site-aware": {"momentum": {"server_step": {"momentum": 0.5}}},
}
ONE_CLASS = {("fedpu", "published"), ("fedvls", "published"), ("fedlsm", "single-label")}


def cases() -> dict[str, dict[str, Any]]:
    """The recipe of every run, by its name: a method and a variant or other settings."""
    found = {}
    for name, place in METHODS.items():
        module, _, class_name = place.partition(":")
        variants = getattr(import_module(module), class_name).variants
        given = {"default": {}, **{variant: {"variant": variant} for variant in variants}}
        for case, settings in (given | FURTHER.get(name, {})).items():
            method = {"name": name, "training": TRAINING, **SHORT.get(name, {}), **settings}
            found[f"{name}--{case}"] = recipe(method, one_class=(name, case) in ONE_CLASS)
    return found


def recipe(method: dict[str, Any], *, one_class: bool) -> dict[str, Any]:
    data = {"name": "digits-mosaic", "classes": 3, "train": 48, "test": 30}
    return {
        "data": data | ({"digits_per_image": [1, 1]} if one_class else {}),
        "partition": {"name": "iid", "clients": 3},
        "annotation": {"name": "missing", "missing": 2, "one_to_one": True},
        "model": {"backbone": "small-resnet"},
        "method": method,
        "rounds": 3,
        "evaluation": {"every": 100},
        "seed": 3,
    }


def models_hash(run: Path) -> str:
    """Of the global model, or of all clients' models."""
    files = [*run.glob("model.safetensors"), *sorted((run / "models").glob("*.safetensors"))]
    digests = [hashlib.sha256(file.read_bytes()).digest() for file in files]
    return hashlib.sha256(b"".join(digests)).hexdigest()


def kill_after_two_rounds(event: str, facts: dict[str, Any]) -> None:
    if event == "round" and facts["round"] == 2:
        os._exit(9)


def command(*arguments: str) -> Any:
    """What a command of this version prints as JSON."""
    done = CliRunner().invoke(app, [*arguments, "--json"])
    if done.exit_code:
        raise RuntimeError(f"{' '.join(arguments)}: {done.exception or done.output}")
    return json.loads(done.stdout)


def opened(path: Path, first: Path) -> dict[str, Any]:
    """The metrics and predictions of a finished run, and its row beside another run's."""
    run = fedquilt.read_run(path)
    images = run.recipe.data.load(path / "cache").test.images
    probabilities = [
        run.predict(images, client=client).probabilities for client in run.models.clients or [None]
    ]
    reports = command("evaluate", str(path))["reports"]
    groups = command("compare", str(first), str(path))["groups"] if path != first else []
    return {
        "predicted": hashlib.sha256(torch.cat(probabilities).numpy().tobytes()).hexdigest(),
        "evaluated": reports,
        "compared": {group["label"]: group["metrics"] for group in groups},
    }


def open_all(folder: Path) -> None:
    first: dict[str, Path] = {}  # by data: runs on other images are not compared
    for path in sorted(folder.glob("*--finished")):
        name = path.name.removesuffix("--finished")
        data = json.dumps(json.loads((path / "recipe.json").read_text())["data"])
        print(json.dumps({"run": name, **opened(path, first.setdefault(data, path))}), flush=True)


def main(mode: str, folder: Path) -> None:
    torch.set_num_threads(1)  # one thread: every version then uses its sequential engine
    if mode == "open":
        open_all(folder)
        return
    for name, settings in cases().items():
        finished, killed = folder / f"{name}--finished", folder / f"{name}--killed"
        made = fedquilt.recipe_from(settings)
        if mode == "train":
            fedquilt.run(made, finished)
            child = os.fork()
            if child == 0:
                fedquilt.run(made, killed, observe=kill_after_two_rounds)
            os.waitpid(child, 0)
        else:
            fedquilt.run(fedquilt.read_recipe(killed / "recipe.json"), killed, resume=True)
        models = models_hash(finished if mode == "train" else killed)
        print(json.dumps({"run": name, "models": models, "recipe": made.hash}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
