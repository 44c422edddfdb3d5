"""Write the models of a run as safetensors, and ``model.json``, which describes them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace

from safetensors.torch import save

from fedquilt.core.atomic_files import write_bytes, write_json
from fedquilt.core.tree import Weights
from fedquilt.models.lora import without_lora
from fedquilt.models.network import read_weights, write_weights
from fedquilt.recipes.recipe import Recipe
from fedquilt.runs.assessment import GLOBAL
from fedquilt.runs.model_json import LAST, Card, new_card
from fedquilt.runs.run_folder import RunFolder
from fedquilt.runs.served_models import ServedModels
from fedquilt.training.task import Task


def save_models(
    folder: RunFolder,
    recipe: Recipe,
    task: Task,
    models: Mapping[str, Weights],
    served: ServedModels | None = None,
) -> None:
    """Write the weights of the global model or of each client's, and ``model.json``.

    Models of the last round, where others are served, are written below ``last``.
    """
    facts = {} if served is None else {"served": dict(served.facts)}
    note = None
    if served is not None and served.facts["model"] == "best":
        note = {name: {"round": str(number)} for name, number in served.rounds.items()}
    card = _write_weights(folder, recipe, task, models, "", note) | facts
    shutil.rmtree(folder.path / LAST, ignore_errors=True)  # of a shorter run
    if served is not None and served.last:
        of_last = _write_weights(folder, recipe, task, served.last, f"{LAST}/", None)
        card[LAST] = {"round": served.facts["trained"]}
        card[LAST] |= {key: of_last[key] for key in ("annotated", "files")}
    write_json(folder.model, card)


def _write_weights(
    folder: RunFolder,
    recipe: Recipe,
    task: Task,
    models: Mapping[str, Weights],
    place: str,
    notes: Mapping[str, dict[str, str]] | None,
) -> Card:
    models, files = {name: whole_weights(task, each) for name, each in models.items()}, {}
    for number, (name, weights) in enumerate(models.items()):
        own = "model.safetensors" if name == GLOBAL else f"models/client-{number:04d}.safetensors"
        files[name] = f"{place}{own}"
        path = folder.path / files[name]
        path.parent.mkdir(parents=True, exist_ok=True)
        tensors = {key: value.cpu().contiguous() for key, value in weights.items()}
        write_bytes(path, save(tensors, None if notes is None else notes[name]))
    return new_card(folder, recipe, task, models, files)


def whole_weights(task: Task, trained: Weights) -> Weights:
    """Return the weights of a plain network: the trained ones, and those that stayed as built."""
    if task.model.train == "all":
        return trained
    network = task.build_network()
    write_weights(network, trained)
    state = without_lora(network) if task.model.train == "lora" else network.state_dict()
    plain_task = replace(task, model=task.model.for_loading())
    return {name: state[name] for name in read_weights(plain_task.build_network())}
