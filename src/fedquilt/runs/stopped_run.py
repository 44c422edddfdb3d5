"""The models of a run that was stopped, from its last checkpoint."""

from __future__ import annotations

from typing import Any

from fedquilt.core.atomic_files import write_json
from fedquilt.core.errors import UserError
from fedquilt.core.parsed_text import parse_json
from fedquilt.data.allocation import Allocation
from fedquilt.data.augmentation.views import Preprocessing, Views
from fedquilt.engines.client_states import personal_weights
from fedquilt.recipes.recipe import Recipe
from fedquilt.runs.assessment import GLOBAL
from fedquilt.runs.checkpoint import Checkpoints
from fedquilt.runs.run_folder import MODELS_AT_SITES, RunFolder
from fedquilt.runs.saved_models import save_models
from fedquilt.runs.served_models import choices_of, choose_models
from fedquilt.training.task import Task

NETWORK = "network.json"  # beside the checkpoints: what the recipe does not say


def keep_network(folder: RunFolder, task: Task) -> None:
    """Write what a model needs beside its weights and the recipe, when a run begins."""
    write_json(folder.checkpoints / NETWORK, {"image_shape": list(task.image_shape)})


def is_stopped(folder: RunFolder) -> bool:
    """Whether the folder holds an unfinished run that can go on from a checkpoint."""
    return not folder.result.exists() and (folder.checkpoints / NETWORK).exists()


def write_stopped_models(folder: RunFolder) -> str:
    """Write the models of the last checkpoint into the run folder; return a note that says so.

    Raise UserError if the run is going on, or if no round of it is saved.
    """
    recipe = folder.read_recipe()
    with folder.begin(recipe, resume=True):
        checkpoints = Checkpoints(folder.checkpoints)
        saved, _ = checkpoints.restore()
        if saved is None or saved.round_count == 0:
            raise UserError(
                f"the run in {folder.path} was stopped before its first round was saved; go on "
                f"with: fedquilt run --out {folder.path} --resume"
            )
        task = _task(folder, recipe)
        weights = recipe.method.global_weights(saved.server)
        last = {} if weights is None else {GLOBAL: weights}
        if weights is None:
            payload = recipe.method.broadcast(saved.server)
            last = dict(personal_weights(recipe.method, payload, checkpoints, task.clients))
        if not last:
            raise UserError(f"{folder.path} is an unfinished study; {MODELS_AT_SITES}")
        records = folder.history.read()[: saved.round_count]
        served = choose_models(
            last,
            checkpoints,
            choices_of(records, recipe),
            recipe.validation,
            trained=saved.round_count,
            planned=recipe.rounds,
            is_validated=any("validation" in record for record in records),
        )
        save_models(folder, recipe, task, served.models, served)
    return (
        f"the run in {folder.path} is not finished: {saved.round_count} of {recipe.rounds} rounds "
        f"are saved. Used is {served.facts['why']}; thresholds and calibration are fitted at the "
        f"end. Go on with: fedquilt run --out {folder.path} --resume"
    )


def _task(folder: RunFolder, recipe: Recipe) -> Task:
    facts: dict[str, Any] = parse_json((folder.checkpoints / NETWORK).read_text(encoding="utf-8"))
    allocation = Allocation.load(folder.partition)
    channels, height, width = facts["image_shape"]
    spec = recipe.method.model_spec(recipe.model)
    if spec.train == "all":  # then nothing stays as the pretrained file had it
        spec = spec.for_loading()
    return Task(
        classes=allocation.classes,
        clients=tuple(holding.name for holding in allocation.holdings),
        image_shape=(channels, height, width),
        model=spec,
        preprocessing=Preprocessing(views=Views(), mean=spec.mean, std=spec.std),
        round_count=recipe.rounds,
        seed=recipe.seed,
    )
