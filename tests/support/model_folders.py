"""Folders with one untrained model, for tests of prediction and export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from fedquilt.core.atomic_files import write_json
from fedquilt.core.settings import plain
from fedquilt.models.network import Network, read_weights
from fedquilt.models.spec import ModelSpec
from fedquilt.runs.model_json import FORMAT
from fedquilt.runs.trained_models import TrainedModels, open_models

CLASSES = ("edema", "=hernia", "mass, left")


def make_network(spec: ModelSpec, channels: int) -> Network:
    network = spec.build(channels=channels, class_count=3, seed=0, class_names=CLASSES).eval()
    generator = torch.Generator().manual_seed(1)
    for module in network.modules():  # statistics as of training, not the initial 0 and 1
        if isinstance(module, torch.nn.BatchNorm2d):
            assert module.running_mean is not None
            assert module.running_var is not None
            module.running_mean.normal_(generator=generator)
            module.running_var.uniform_(0.5, 2.0, generator=generator)
    return network


def make_model_folder(
    folder: Path, spec: ModelSpec, *, channels: int = 1, size: int = 16, **card: Any
) -> TrainedModels:
    """Write ``model.json`` and the weights as a run does; ``card`` replaces entries."""
    folder.mkdir(parents=True)
    save_file(read_weights(make_network(spec, channels)), folder / "model.safetensors")
    content = {
        "format": FORMAT,
        "classes": list(CLASSES),
        "image_shape": [channels, size, size],
        "decoding": {"size": size, "channels": channels, "fit": "squash", "window": None},
        "model": plain(spec, {}),
        "seed": 0,
        "threshold": 0.5,
        "strict": False,
        "batch_size": 256,
        "annotated": {"global": list(CLASSES)},
        "files": {"global": "model.safetensors"},
    }
    write_json(folder / "model.json", content | card)
    return open_models(folder)
