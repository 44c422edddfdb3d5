"""Write a model as a MONAI bundle: a folder with metadata, an inference config and the model.

``models/model.ts`` is TorchScript, which a bundle may hold in place of a pickled ``model.pt``.
``model.json`` and ``models/model.safetensors`` are for ``fedquilt predict FOLDER``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedquilt.core.atomic_files import write_bytes, write_json
from fedquilt.core.errors import UserError
from fedquilt.core.version import VERSION
from fedquilt.runs.export.deployable import INPUT, Exported, to_export
from fedquilt.runs.export.hub_folder import model_page, whole_folder, write_model
from fedquilt.runs.export.torchscript_file import export_torchscript
from fedquilt.runs.trained_models import TrainedModels

NO_LICENCE = "No licence was chosen. Whoever publishes this bundle puts one here.\n"
MONAI = "1.6.1"  # the version whose bundle format this is


def export_monai(models: TrainedModels, client: str | None, out: Path) -> float:
    """Write the bundle; return the largest difference of its model to torch."""
    exported = to_export(models, client)
    if exported.card["decoding"] is None:
        raise UserError("a MONAI bundle reads image files, and this model was trained on others")
    with whole_folder(out) as folder:
        for name in ("configs", "models", "docs"):
            (folder / name).mkdir()
        difference = export_torchscript(exported, folder / "models" / "model.ts")
        card = write_model(models, client, folder, "models/model.safetensors")
        write_json(folder / "configs" / "metadata.json", metadata(exported))
        write_json(folder / "configs" / "inference.json", inference(exported))
        write_bytes(folder / "docs" / "README.md", model_page(models, client, card).encode())
        write_bytes(folder / "LICENSE", NO_LICENCE.encode())
    return difference


def metadata(exported: Exported) -> dict[str, Any]:
    """What MONAI requires to be said, and fedquilt's facts under ``fedquilt``."""
    channels, height, width = exported.image_shape
    classes = exported.card["classes"]
    pixels = {
        "type": "image",
        "format": "magnitude",
        "modality": "not stated",
        "num_channels": channels,
        "spatial_shape": [height, width],
        "dtype": "uint8",
        "value_range": [0, 255],
        "is_patch_data": False,
        "channel_def": {"0": "grey"} if channels == 1 else {"0": "R", "1": "G", "2": "B"},
    }
    pred = {
        "type": "probabilities",
        "format": "classes",
        "num_channels": len(classes),
        "spatial_shape": [],
        "dtype": "float32",
        "value_range": [0, 1],
        "is_patch_data": False,
        "channel_def": {str(place): name for place, name in enumerate(classes)},
    }
    return {
        "version": "0.1.0",
        "changelog": {"0.1.0": f"exported by fedquilt {VERSION}"},
        "monai_version": MONAI,
        "pytorch_version": torch.__version__.partition("+")[0],
        "numpy_version": np.__version__,
        "required_packages_version": {"pillow": "10.3"},
        "task": "multi-label image classification",
        "description": "Trained with fedquilt. Research software, not a medical device.",
        "authors": "not stated",
        "copyright": "not stated",
        "data_type": "image files",
        "intended_use": "not stated",
        "network_data_format": {"inputs": {INPUT: pixels}, "outputs": {"pred": pred}},
        "fedquilt": exported.facts,
    }


def inference(exported: Exported) -> dict[str, Any]:
    """A config for ``monai.bundle run``: images of a folder to a CSV of probabilities."""
    mode = "L" if exported.image_shape[0] == 1 else "RGB"
    size = exported.card["decoding"]["size"]
    axes = "[None]" if mode == "L" else ".transpose(2, 0, 1)"
    # Pillow's bilinear filter is the one of training; MONAI's own resizing differs.
    read = (
        f"$lambda path: torch.from_numpy(np.array(PIL.Image.open(path).convert('{mode}').resize("
        f"({size}, {size}), PIL.Image.Resampling.BILINEAR)){axes})"
    )
    return {
        "imports": ["$import csv", "$import glob", "$import numpy as np", "$import torch",
                    "$import PIL.Image"],
        "bundle_root": ".",
        "dataset_dir": "images",
        "output": "predictions.csv",
        "device": "$torch.device('cuda' if torch.cuda.is_available() else 'cpu')",
        "classes": exported.card["classes"],
        "files": "$sorted(glob.glob(@dataset_dir + '/*'))",
        "read": read,
        "network": "$torch.jit.load(@bundle_root + '/models/model.ts').to(@device).eval()",
        "probabilities": "$[@network(@read(path)[None].to(@device))[1][0].tolist() "
                         "for path in @files]",
        "run": [
            "$csv.writer(open(@output, 'w', newline='')).writerows([['image', *@classes]] + "
            "[[path, *row] for path, row in zip(@files, @probabilities)])"
        ],
    }  # fmt: skip
