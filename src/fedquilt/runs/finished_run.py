"""read_run(): what a run left behind, to look at and to predict with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.data.allocation import Allocation
from fedquilt.data.dataset import MultiLabelDataset
from fedquilt.metrics import Report, score
from fedquilt.metrics.counts import predict
from fedquilt.recipes.recipe import Recipe
from fedquilt.runs.run_folder import RunFolder
from fedquilt.runs.trained_models import TrainedModels


@dataclass(frozen=True, eq=False)
class Prediction:
    """What a model says about some images."""

    images: tuple[str, ...]  # as given: the path, or the position in the tensor
    classes: tuple[str, ...]
    probabilities: Tensor  # (N, C)
    present: Tensor  # (N, C) bool

    def rows(self) -> list[dict[str, Any]]:
        """One dict per image and class."""
        return [
            {"image": image, "class": name, "probability": probability, "present": is_present}
            for image, row, decisions in zip(
                self.images, self.probabilities.tolist(), self.present.tolist()
            )
            for name, probability, is_present in zip(self.classes, row, decisions)
        ]


@dataclass(frozen=True, eq=False)
class Run:
    """A view on a run's folder; files are read when they are asked for."""

    folder: RunFolder
    recipe: Recipe

    @property
    def path(self) -> Path:
        return self.folder.path

    @cached_property
    def history(self) -> list[dict[str, Any]]:
        """One record a round, also of a run that is not finished."""
        return self.folder.history.read()

    @cached_property
    def result(self) -> dict[str, Any]:
        result: dict[str, Any] = self.folder.read_json(self.folder.result)
        return result

    @cached_property
    def allocation(self) -> Allocation:
        """Who held which images and annotated which of their labels."""
        return Allocation.load(self.folder.partition)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.allocation.classes

    @cached_property
    def models(self) -> TrainedModels:
        return TrainedModels(self.folder, self.recipe)

    @property
    def annotators(self) -> dict[str, list[str]]:
        """By class, the clients that annotated it for at least one image."""
        columns = self.allocation.annotation_map().T.tolist()
        names = [holding.name for holding in self.allocation.holdings]
        return {
            label: [name for name, annotates in zip(names, column) if annotates]
            for label, column in zip(self.classes, columns)
        }

    def predict(
        self,
        images: Tensor | Sequence[str | Path],
        *,
        client: str | None = None,
        threshold: float | None = None,
        device: str = "cpu",
    ) -> Prediction:
        """Predict every class for every image.

        Args:
            images: uint8 of shape (N, channels, height, width), or paths of image files.
            client: whose model, for a run in which each client has its own.
            threshold: from which probability a class counts as present; the recipe's if left out.
        """
        if isinstance(images, Tensor):
            names, pixels = [str(row) for row in range(len(images))], images
        else:
            names, pixels = [str(path) for path in images], self.models.decode(images)
        probabilities = self.models.probabilities(pixels, client, device)
        present = predict(probabilities, self._limit(threshold), self.recipe.evaluation.strict)
        return Prediction(tuple(names), self.classes, probabilities, present)

    def evaluate(
        self,
        parts: Sequence[MultiLabelDataset],
        *,
        client: str | None = None,
        threshold: float | None = None,
        device: str = "cpu",
    ) -> Report:
        """One report on all the parts together, which must have the run's classes."""
        for part in parts:
            if part.classes != self.classes:
                raise UserError(
                    f"the run knows the classes {', '.join(self.classes)}, the data have "
                    f"{', '.join(part.classes)}; give data with the same classes in the same order"
                )
        probabilities = [self.models.probabilities(p.images, client, device) for p in parts]
        return score(
            torch.cat(probabilities),
            torch.cat([part.labels for part in parts]),
            torch.cat([part.known for part in parts]),
            self.classes,
            threshold=self._limit(threshold),
            strict=self.recipe.evaluation.strict,
        )

    def _limit(self, threshold: float | None) -> float:
        return self.recipe.evaluation.threshold if threshold is None else threshold


def read_run(path: str | Path) -> Run:
    """Open a run's folder; one that is not finished has no result and no model yet."""
    folder = RunFolder(Path(path))
    if not folder.path.is_dir():
        raise UserError(f"there is no run folder {path}")
    return Run(folder, folder.read_recipe())
