"""What ``model.json`` holds: all that prediction needs; it needs no recipe and no method."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.core.settings import plain, read
from fedquilt.core.tree import Weights
from fedquilt.data.allocation import Allocation
from fedquilt.data.images.decoding import Decoding, Fit
from fedquilt.data.source import Source
from fedquilt.data.sources import SOURCES
from fedquilt.metrics.evaluation import Evaluation
from fedquilt.models.spec import ModelSpec
from fedquilt.recipes.recipe import Recipe
from fedquilt.runs.run_folder import RunFolder
from fedquilt.training.task import Task

Card = dict[str, Any]
Which: TypeAlias = Literal["best", "last"]
LAST = "last"  # what the models of the last round have of their own, where others are served
OWN = (
    *(LAST, "files", "annotated", "thresholds", "calibration", "by_client", "served"),
    "unlike_training",
)
FORMAT = 2  # 1, without a number: decoding, seed and annotated classes were in other files only


def new_card(
    folder: RunFolder,
    recipe: Recipe,
    task: Task,
    models: Mapping[str, Weights],
    files: Mapping[str, str],
) -> Card:
    """Describe the models of a run; the folder holds its allocation already."""
    allocation = Allocation.load(folder.partition)
    by_anyone, by_client = allocation.annotation_map().any(0), {}
    if recipe.method.own_classes_only:
        by_client = {each.name: each.known.any(0) for each in allocation.holdings}
    return {
        "format": FORMAT,
        "classes": list(task.classes),
        "image_shape": list(task.image_shape),
        "decoding": _decoding_of(recipe.data, task.image_shape),
        "model": plain(task.model.for_loading(), {}),
        "seed": task.seed,  # of layers that are fixed, so not among the weights
        "threshold": recipe.evaluation.threshold,
        "strict": recipe.evaluation.strict,
        "batch_size": recipe.evaluation.batch_size,
        "annotated": {
            name: _annotated_classes(by_client.get(name, by_anyone), task, weights)
            for name, weights in models.items()
        },
        "files": dict(files),
    }


def _annotated_classes(annotated: Tensor, task: Task, weights: Weights) -> list[str]:
    """Return the annotated classes (C,) whose rows of this model were trained."""
    rows = [weights[entry] for entry in task.layout.head if entry in weights]
    return [
        label
        for place, (label, is_annotated) in enumerate(zip(task.classes, annotated.tolist()))
        # A site may receive no row for a class; then it is zero.
        if is_annotated and (not rows or any(bool(entry[place].any()) for entry in rows))
    ]


def read_card(folder: RunFolder) -> Card:
    """Read ``model.json``; what an older one lacks comes from the run's other files."""
    card: Card = folder.read_json(folder.model)
    if not isinstance(card, dict) or not {"classes", "image_shape", "model", "files"} <= set(card):
        raise UserError(f"{folder.model} is damaged: it does not describe a model")
    if card.get("format", 1) > FORMAT:
        raise UserError(
            f"{folder.model} has format {card['format']}, this fedquilt knows up to {FORMAT}; "
            "use a newer fedquilt"
        )
    return card if "format" in card else _from_run(folder) | card


def card_of(card: Card, which: Which | None, run: Path) -> Card:
    """Return the card of the models of the best or the last round, or of those that are served.

    Raise UserError if the run has no best round.
    """
    served, last = card.get("served", {}), card.get(LAST)
    if which == "best" and served.get("model") != "best":
        why = served.get("why", "the last round: the run has no validation part")
        raise UserError(f"{run} has no best round; it serves {why}; leave out --model best")
    if which == "last" and last is not None:
        facts = {"model": "last", "round": last["round"], "why": "the last round, as asked for"}
        rest = {key: value for key, value in card.items() if key not in OWN}
        return {**rest, "served": served | facts, **last}
    return {key: value for key, value in card.items() if key != LAST}


def _from_run(folder: RunFolder) -> Card:
    """What format 1 lacks. The method is not read: it may not be installed here."""
    recipe = folder.read_json(folder.recipe)
    evaluation = read(Evaluation, recipe.get("evaluation", {}), "recipe.evaluation", {})
    card = folder.read_json(folder.model)
    source = read(Source, recipe["data"], "recipe.data", {Source: ("data source", SOURCES)})
    return {
        "decoding": _decoding_of(source, tuple(card["image_shape"])),
        "seed": recipe["seed"],
        "strict": evaluation.strict,
        "batch_size": evaluation.batch_size,
        "annotated": dict.fromkeys(card["files"], card["classes"]),
    }


def _decoding_of(source: Source, image_shape: tuple[int, int, int]) -> dict[str, Any] | None:
    """How to decode an image file as in training; None if the data are no images of files."""
    decoding = getattr(source, "decoding", None)
    channels, height, width = image_shape
    if not isinstance(decoding, Decoding):
        if height != width or channels not in (1, 3):
            return None
        fit: Fit = getattr(source, "fit", "squash")
        decoding = Decoding(height, 1 if channels == 1 else 3, fit)
    content: dict[str, Any] = plain(decoding, {})
    return content


def model_spec(card: Card) -> ModelSpec:
    spec: ModelSpec = read(ModelSpec, card["model"], "model", {})
    return spec


def decoding(card: Card) -> Decoding:
    if card["decoding"] is None:
        shape = " x ".join(map(str, card["image_shape"]))
        raise UserError(
            f"this run was trained on data of shape {shape}, which cannot be read from an image "
            "file; use Python and pass a uint8 tensor of that shape"
        )
    found: Decoding = read(Decoding, card["decoding"], "model.json: decoding", {})
    return found
