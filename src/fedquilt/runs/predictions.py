"""Predictions for image tensors, and for any number of image files in batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedquilt.data.images.bad_image import NEEDS_PYDICOM, BadImage
from fedquilt.data.images.decoding import decode_image
from fedquilt.data.parallel import in_parallel
from fedquilt.models.network import Network
from fedquilt.runs.decisions import Decisions, decisions
from fedquilt.runs.fitted_decisions import Given
from fedquilt.runs.trained_models import TrainedModels

BATCH = 32  # files whose images are predicted together, while threads decode the next ones


@dataclass(frozen=True, eq=False)
class Prediction:
    """A model's predictions for some images."""

    images: tuple[str, ...]  # the path, or the position in the tensor
    classes: tuple[str, ...]
    logits: Tensor  # (N, C), before the sigmoid
    probabilities: Tensor  # (N, C), not calibrated
    present: Tensor  # (N, C) bool, false where a class is not judged
    unlike: tuple[str | None, ...]  # by what an image is unlike the training images, or "no"
    decisions: Decisions

    def rows(self) -> list[dict[str, Any]]:
        """Return one dict per image and class."""
        return [row for rows in self.by_image() for row in rows]

    def by_image(self) -> Iterator[list[dict[str, Any]]]:
        """Yield the rows of every image."""
        words = self.decisions.words(self.present)
        calibrated = self.decisions.calibrated(self.logits)
        limits = [rule.probability for rule in self.decisions.rules]
        for image, unlike, *numbers, decided in zip(
            self.images,
            self.unlike,
            self.logits.tolist(),
            self.probabilities.tolist(),
            calibrated,
            words,
        ):
            yield [
                {
                    "image": image,
                    "class": name,
                    "logit": logit,
                    "probability": probability,
                    "calibrated": believable,
                    "threshold": limit,
                    "decision": decision,
                    "unlike_training": unlike,
                }
                for name, logit, probability, believable, limit, decision in zip(
                    self.classes, *numbers, limits, decided
                )
            ]


@dataclass(frozen=True, eq=False)
class FileBatch:
    """Some files in the order in which they were named: a prediction, or why there is none."""

    prediction: Prediction  # of the files that could be read
    pixels: Tensor  # (N, channels, height, width) uint8, of the same files
    files: tuple[str, ...]  # all of them
    errors: Mapping[int, str]  # by position in ``files``
    start: int  # the number of files in the batches before

    def positions(self) -> list[int]:
        """Return the positions, among all files, of those that could be read."""
        return [self.start + place for place in range(len(self.files)) if place not in self.errors]

    def rows(self) -> Iterator[tuple[str, list[dict[str, Any]], str | None]]:
        """Yield every file with its rows, which are empty if there is an error."""
        good = self.prediction.by_image()
        for place, name in enumerate(self.files):
            error = self.errors.get(place)
            yield name, [] if error else next(good), error


def predict_tensor(
    models: TrainedModels, images: Tensor, client: str | None, threshold: Given, device: str
) -> Prediction:
    """Predict every class for uint8 images (N, channels, height, width)."""
    names = tuple(map(str, range(len(images))))
    rules = decisions(models.card, models.model_name(client), threshold)
    models.check_images(images)
    return _prediction(models, names, models.network(client, device), images, device, rules)


def predict_files(
    models: TrainedModels,
    paths: Sequence[Path],
    *,
    client: str | None = None,
    threshold: Given = None,
    device: str = "cpu",
) -> Iterator[FileBatch]:
    """Decode and predict the files, in order; a bad file does not stop the others."""
    rules = decisions(models.card, models.model_name(client), threshold)
    network, decoding = models.network(client, device), models.decoding

    def decode(path: Path) -> Tensor | BadImage:
        try:
            return torch.tensor(decode_image(path, decoding).pixels)
        except BadImage as bad:
            return bad

    decoded, start = zip(paths, in_parallel(decode, paths, "predicting")), 0
    while batch := [pair for _, pair in zip(range(BATCH), decoded)]:
        files = tuple(str(path) for path, _ in batch)
        errors = {
            place: _reason(path, found)
            for place, (path, found) in enumerate(batch)
            if isinstance(found, BadImage)
        }
        good = [found for _, found in batch if isinstance(found, Tensor)]
        pixels = torch.stack(good) if good else torch.zeros(0, *models.image_shape).byte()
        names = tuple(name for place, name in enumerate(files) if place not in errors)
        prediction = _prediction(models, names, network, pixels, device, rules)
        yield FileBatch(prediction, pixels, files, errors, start)
        start += len(files)


def _prediction(
    models: TrainedModels,
    names: tuple[str, ...],
    network: Network,
    images: Tensor,
    device: str,
    rules: Decisions,
) -> Prediction:
    logits, unlike = models.judged_by(network, images, device)
    probabilities = torch.sigmoid(logits).cpu()
    logits = logits.cpu()
    present = rules.present(logits, probabilities)
    return Prediction(names, models.classes, logits, probabilities, present, tuple(unlike), rules)


def _reason(path: Path, bad: BadImage) -> str:
    if not path.exists():
        return "there is no such file"
    if path.is_dir():
        return "this is a folder"
    return str(bad) if bad.kind is NEEDS_PYDICOM else bad.detail
