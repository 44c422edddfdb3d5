"""Runs of a few rounds on a few mosaics, for tests of what reads a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedquilt.recipes.recipe import recipe_from
from fedquilt.runs.experiment import run
from fedquilt.runs.finished_run import Run, read_run

CLASSES = ("digit 0", "digit 1", "digit 2")
CLIENTS = ("client-0", "client-1", "client-2")


def tiny_settings(method: str = "fedmlp", **changes: Any) -> dict[str, Any]:
    """Three clients that annotate one class each; a staged method leaves its warm-up at once."""
    stages = {"warmup_rounds": 1, "rounding": "ceil"} if method == "fedmlp" else {}
    settings = {
        "data": {"name": "digits-mosaic", "classes": 3, "train": 30, "test": 40},
        "partition": {"name": "iid", "clients": 3},
        "annotation": {"name": "missing", "missing": 2, "one_to_one": True},
        "views": {"weak": "plain"},
        "method": {"name": method, "training": {"batch_size": 10, "lr": 3e-3}, **stages},
        "rounds": 2,
    }
    return settings | changes


def make_run(folder: Path, method: str = "fedmlp", **changes: Any) -> Run:
    run(recipe_from(tiny_settings(method, **changes)), folder)
    return read_run(folder)


def predictions_of_two_clients(folder: Path, method: str, **changes: Any) -> list[Tensor]:
    """Probabilities (3, 3) of the same images, by two of the models a finished run leaves behind.

    For methods that have a model per client; ``changes`` are of the method's settings.
    """
    settings = tiny_settings(method)
    run(recipe_from(settings | {"method": settings["method"] | changes}), folder)
    models = read_run(folder).models
    assert models.clients == CLIENTS
    images = torch.randint(0, 256, (3, *models.image_shape), dtype=torch.uint8)
    return [models.probabilities(images, name) for name in CLIENTS[:2]]


def write_recipe(path: Path, method: str = "fedmlp", **changes: Any) -> Path:
    path.write_text(json.dumps(tiny_settings(method, **changes)))
    return path
