"""Images unlike those a model was trained on: what a run stores to notice them.

``unlike_training.safetensors`` describes where the training images lie, by the features of the
network and by statistics of their pixels; ``model.json`` says from which distance on an image is
far, and how often that flags test images. Both are sums over at most ``MOST`` images.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from fedquilt.core.atomic_files import write_bytes, write_json
from fedquilt.core.errors import UserError
from fedquilt.core.seeding import generator_for
from fedquilt.core.tree import Weights
from fedquilt.data.dataset import MultiLabelDataset
from fedquilt.data.images.pixel_statistics import pixel_statistics
from fedquilt.metrics.evaluation import predict_logits
from fedquilt.metrics.intervals import rate_interval
from fedquilt.metrics.training_distance import (
    FEWEST,
    QUANTILE,
    TrainingDistance,
    far_from,
    fit_distance,
)
from fedquilt.models.network import Output
from fedquilt.runs.model_json import Card
from fedquilt.runs.run_folder import RunFolder
from fedquilt.training.task import Task

FILE = "unlike_training.safetensors"
ENTRY = "unlike_training"  # of model.json and of result.json
MOST = 1000  # images of a part that are looked at
KINDS = ("features", "pixels")
Forward = Callable[[Weights, Tensor], Output]


@dataclass(frozen=True, eq=False)
class UnlikeTraining:
    """Tells whether images are far from the training images, by features or by pixels."""

    distances: Mapping[str, TrainingDistance]
    limits: Mapping[str, float]

    def words(self, features: Tensor, images: Tensor) -> list[str]:
        """Return for each image "no", or by what it is far: "features", "pixels" or both."""
        numbers = _numbers(features, images)
        far = {kind: self.distances[kind].of(numbers[kind]) > self.limits[kind] for kind in KINDS}
        found = ([kind for kind in KINDS if far[kind][row]] for row in range(len(images)))
        return [" and ".join(kinds) or "no" for kinds in found]


class Kept:
    """Keeps the features of a network whose logits are asked for."""

    def __init__(self, forward: Forward) -> None:
        self._forward, self._batches = forward, list[Tensor]()

    def __call__(self, weights: Weights, images: Tensor) -> Output:
        output = self._forward(weights, images)
        self._batches.append(output.features.detach().flatten(1).float().cpu())
        return output

    def features(self) -> Tensor:
        return torch.cat(self._batches)


@dataclass(frozen=True, eq=False)
class FeaturesOf:
    """The features (N, d) that a network has for uint8 images."""

    forward: Forward
    weights: Weights
    task: Task
    batch_size: int
    device: torch.device

    def __call__(self, images: Tensor) -> Tensor:
        kept = Kept(self.forward)
        predict_logits(
            kept,
            self.weights,
            images,
            self.task,
            batch_size=self.batch_size,
            device=self.device,
        )
        return kept.features()


def fit_unlike_training(
    features_of: FeaturesOf, train: MultiLabelDataset, rows: Tensor
) -> UnlikeTraining | None:
    """Fit to the images at ``rows``; None if they are too few, or a feature is not finite."""
    chosen = train.select(_some(rows, "train", features_of.task.seed))
    if len(chosen) < FEWEST:
        return None
    numbers = _numbers(features_of(chosen.images), chosen.images)
    if not all(np.isfinite(each).all() for each in numbers.values()):
        return None
    return UnlikeTraining(
        {kind: fit_distance(numbers[kind]) for kind in KINDS},
        {kind: far_from(numbers[kind], chosen.groups) for kind in KINDS},
    )


def false_alarms(
    found: UnlikeTraining, features_of: FeaturesOf, test: MultiLabelDataset
) -> dict[str, Any]:
    """Return how many test images are flagged, with an interval that counts patients."""
    chosen = test.select(_some(torch.arange(len(test)), "test", features_of.task.seed))
    words = found.words(features_of(chosen.images), chosen.images)
    flagged = np.array([word != "no" for word in words], np.float64)
    _, patient = np.unique(np.array(chosen.groups or chosen.ids), return_inverse=True)
    member = (patient[:, None] == np.arange(patient.max() + 1)).astype(np.float64)
    share = rate_interval(flagged @ member, member.sum(0))
    return {
        "images": len(chosen),
        "flagged": int(flagged.sum()),
        "share": share.value,
        "low": share.low,
        "high": share.high,
    }


def write_unlike_training(
    folder: RunFolder, found: UnlikeTraining | None, alarms: Mapping[str, Any]
) -> None:
    """Write the file and the entry of ``model.json``; remove what a shorter run left."""
    path = folder.path / FILE
    if found is None:
        path.unlink(missing_ok=True)
        return
    tensors = {
        f"{kind}.{name}": torch.as_tensor(np.asarray(getattr(distance, name), np.float64))
        for kind, distance in found.distances.items()
        for name in ("mean", "directions", "variances", "rest")
    }
    write_bytes(path, save(tensors))
    entry = {"file": FILE, "quantile": QUANTILE, "limits": dict(found.limits)}
    write_json(folder.model, folder.read_json(folder.model) | {ENTRY: entry | dict(alarms)})


def read_unlike_training(folder: RunFolder, card: Card) -> UnlikeTraining | None:
    """Read what the model's folder holds; None if it stores nothing to compare with."""
    entry = card.get(ENTRY)
    if entry is None:
        return None
    path = folder.path / entry["file"]
    try:
        stored = {name: each.numpy() for name, each in load_file(path).items()}
        distances = {
            kind: TrainingDistance(
                stored[f"{kind}.mean"],
                stored[f"{kind}.directions"],
                stored[f"{kind}.variances"],
                float(stored[f"{kind}.rest"]),
            )
            for kind in KINDS
        }
    except (OSError, SafetensorError, KeyError) as error:
        raise UserError(
            f"{path} cannot be read ({error}); write it again: fedquilt run --out {folder.path} "
            "--resume"
        ) from error
    return UnlikeTraining(distances, entry["limits"])


def _some(rows: Tensor, part: str, seed: int) -> Tensor:
    """Return at most ``MOST`` rows, always the same ones."""
    order = torch.randperm(len(rows), generator=generator_for(seed, "unlike training", part))
    return rows[order[:MOST].sort().values]


def _numbers(features: Tensor, images: Tensor) -> dict[str, Any]:
    return {
        "features": features.double().numpy(),
        "pixels": pixel_statistics(images).numpy(),
    }
