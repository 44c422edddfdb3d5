"""A run's model on disk: safetensors for the weights, JSON for what they mean."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save

from fedquilt.assessment import GLOBAL
from fedquilt.atomic_files import write_bytes, write_json
from fedquilt.recipe import Recipe
from fedquilt.run_folder import RunFolder
from fedquilt.strict_reading import plain
from fedquilt.task import Task
from fedquilt.tree import Weights


def save_models(
    folder: RunFolder, recipe: Recipe, task: Task, models: Mapping[str, Weights]
) -> None:
    """Write one file for the global model, or one per client, and the card that explains them."""
    files = {}
    for place, (name, weights) in enumerate(models.items()):
        file = "model.safetensors" if name == GLOBAL else f"models/client-{place:04d}.safetensors"
        files[name] = file
        path = folder.path / file
        path.parent.mkdir(exist_ok=True)
        write_bytes(path, save({key: value.cpu().contiguous() for key, value in weights.items()}))
    write_json(
        folder.model,
        {
            "classes": list(task.classes),
            "image_shape": list(task.image_shape),
            "model": plain(task.model.for_weights_at_hand(), {}),
            "threshold": recipe.evaluation.threshold,
            "files": files,
        },
    )


def load_weights(folder: RunFolder, card: Mapping[str, Any], name: str) -> Weights:
    weights: Weights = load_file(Path(folder.path / card["files"][name]))
    return weights
