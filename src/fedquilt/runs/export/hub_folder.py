"""Write a model as a folder for the Hugging Face hub; ``fedquilt predict FOLDER`` opens it.

The weights stay safetensors and nothing in the folder runs code. Uploading is left to the user.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedquilt.core.atomic_files import write_bytes, write_json
from fedquilt.core.errors import UserError
from fedquilt.core.version import VERSION
from fedquilt.runs.assessment import GLOBAL
from fedquilt.runs.export.deployable import single_card
from fedquilt.runs.model_json import Card
from fedquilt.runs.trained_models import TrainedModels
from fedquilt.runs.unlike_training import ENTRY, FILE

PAGE = "MODEL_CARD.md"  # of the run, if it has a report


@contextmanager
def whole_folder(out: Path) -> Iterator[Path]:
    """Yield a folder that gets the name ``out`` when it is complete; else nothing remains."""
    if out.exists():
        raise UserError(f"{out} already exists; give another --out, or remove it first")
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        yield partial
        partial.chmod(0o755)  # a temporary folder is private
        partial.rename(out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def export_hub(models: TrainedModels, client: str | None, out: Path) -> None:
    """Write the folder."""
    with whole_folder(out) as folder:
        card = write_model(models, client, folder, "model.safetensors")
        write_json(folder / "config.json", _config(card))
        write_bytes(folder / "README.md", model_page(models, client, card).encode())


def write_model(models: TrainedModels, client: str | None, folder: Path, weights: str) -> Card:
    """Write what ``fedquilt predict`` needs of one model; return its ``model.json``."""
    name = models.model_name(client)
    shutil.copyfile(models.folder.path / models.card["files"][name], folder / weights)
    card = single_card(models, client) | {"files": {GLOBAL: weights}}
    if ENTRY in card:
        shutil.copyfile(models.folder.path / card[ENTRY]["file"], folder / FILE)
    write_json(folder / "model.json", card)
    return card


def _config(card: Card) -> dict[str, Any]:
    """What the hub shows and other programs look for first."""
    return {
        "library_name": "fedquilt",
        "fedquilt_version": VERSION,
        "architecture": card["model"]["backbone"],
        "head": card["model"]["head"],
        "num_classes": len(card["classes"]),
        "problem_type": "multi_label_classification",
        "id2label": dict(enumerate(card["classes"])),
        "label2id": {name: place for place, name in enumerate(card["classes"])},
        "image_shape": card["image_shape"],
    }


def model_page(models: TrainedModels, client: str | None, card: Card) -> str:
    """Return the README: the run's model card if it has one, else one from ``model.json``."""
    front = {
        "license": "other",  # to be chosen by whoever publishes the weights
        "library_name": "fedquilt",
        "pipeline_tag": "image-classification",
        "tags": ["federated-learning", "multi-label", "partial-labels"],
    }
    # A YAML list in JSON's notation is YAML too.
    lines = [f"{key}: {json.dumps(value)}" for key, value in front.items()]
    written = models.folder.path / PAGE
    body = written.read_text("utf-8") if written.is_file() else _own_words(card)
    use = f"""
## Use

`fedquilt predict FOLDER IMAGE...` with this folder. The weights are `model.safetensors`
({models.hash_of(client)}); `model.json` says how images are decoded and which classes were
annotated. The licence is "other" until the publisher chooses one. Weights can leak training data:
publish them only if the study's policy allows it.
"""
    return "---\n" + "\n".join(lines) + "\n---\n\n" + body.rstrip("\n") + "\n" + use


def _own_words(card: Card) -> str:
    annotated = set(card["annotated"]["global"])
    rows = [
        f"- {name}" + ("" if name in annotated else " (not judged: nobody annotated it)")
        for name in card["classes"]
    ]
    return (
        "# A multi-label image classifier\n\nTrained with fedquilt. Research software, not a "
        "medical device. Intended use, data and results: not stated.\n\nClasses:\n\n"
        + "\n".join(rows)
        + "\n"
    )
