"""read_run(): open a run folder to read results, evaluate and predict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.core.own_code import remember
from fedquilt.core.settings import read
from fedquilt.data.allocation import Allocation
from fedquilt.data.client_arrays import names_by_class
from fedquilt.data.dataset import MultiLabelDataset
from fedquilt.data.source import Source
from fedquilt.data.sources import SOURCES
from fedquilt.metrics import Report, nan_to_none, score
from fedquilt.metrics.class_intervals import model_intervals
from fedquilt.metrics.evaluation import Evaluation, called_present
from fedquilt.metrics.labelled_images import LabelledImages
from fedquilt.recipes.recipe import Recipe, recipe_from
from fedquilt.runs.assessment import GLOBAL
from fedquilt.runs.fitted_decisions import (
    Found,
    Given,
    decision_quality,
    stored_decisions,
    with_given,
)
from fedquilt.runs.model_json import Which
from fedquilt.runs.predictions import Prediction, predict_tensor
from fedquilt.runs.result_tables import read_result
from fedquilt.runs.run_folder import RunFolder
from fedquilt.runs.scores import Scores, read_scores, write_scores
from fedquilt.runs.trained_models import TrainedModels


@dataclass(frozen=True, eq=False)
class Run:
    """A view of a run folder; files are read on first use.

    Only ``recipe`` needs the method, which may be the user's own; the rest works without it.
    """

    folder: RunFolder
    which: Which | None = None  # the models of the best or the last round; None: those served

    @property
    def path(self) -> Path:
        return self.folder.path

    @cached_property
    def recipe(self) -> Recipe:
        return recipe_from(self._stored)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The recipe as plain data; as it is stored if the method is not known here."""
        try:
            return self.recipe.to_dict()
        except UserError:
            return self._stored

    @property
    def is_bound(self) -> bool:
        """Whether the method saw labels that no site annotated, so that it is no rival."""
        try:
            return self.recipe.method.needs_complete_labels
        except UserError:  # a method of the user's own, which is not known here
            return False

    @property
    def evaluation(self) -> Evaluation:
        found: Evaluation = read(
            Evaluation, self._stored.get("evaluation", {}), "recipe.evaluation", {}
        )
        return found

    @property
    def source(self) -> Source:
        """The data of the recipe, not loaded."""
        found: Source = read(
            Source, self._stored["data"], "recipe.data", {Source: ("data source", SOURCES)}
        )
        return found

    @cached_property
    def _stored(self) -> dict[str, Any]:
        stored: dict[str, Any] = self.folder.read_json(self.folder.recipe)
        return stored

    @cached_property
    def history(self) -> list[dict[str, Any]]:
        """One record per round, also for an unfinished run."""
        return self.folder.history.read()

    @cached_property
    def result(self) -> dict[str, Any]:
        return read_result(self.folder.read_json(self.folder.result), self.path)

    @cached_property
    def allocation(self) -> Allocation:
        """Which client held which images and annotated which labels."""
        return Allocation.load(self.folder.partition)

    @property
    def served_round(self) -> int | None:
        """The round of the served model; None if every client's model has its own."""
        found: int | None = self.result.get("served", {}).get("round", self.result["rounds"])
        return found

    @property
    def classes(self) -> tuple[str, ...]:
        return self.allocation.classes

    @cached_property
    def models(self) -> TrainedModels:
        return TrainedModels(self.folder, self.which)

    @property
    def annotators(self) -> dict[str, list[str]]:
        """For every class, the clients that annotated it for at least one image."""
        names = [holding.name for holding in self.allocation.holdings]
        annotated = self.allocation.annotation_map().numpy()
        return names_by_class(names, self.classes, annotated)

    def predict(
        self,
        images: Tensor | Sequence[str | Path],
        *,
        client: str | None = None,
        threshold: Given = None,
        device: str = "cpu",
    ) -> Prediction:
        """Predict every class for every image.

        Args:
            images: a uint8 tensor of shape (N, channels, height, width), or image files.
            client: the client whose model to use, if each client has its own.
            threshold: the lowest probability of a present class, of all classes or by class;
                default: the model's own.
            device: where to compute.
        """
        pixels = images if isinstance(images, Tensor) else self.models.decode(images)
        prediction = predict_tensor(self.models, pixels, client, threshold, device)
        if isinstance(images, Tensor):
            return prediction
        return replace(prediction, images=tuple(str(path) for path in images))

    def evaluate(
        self,
        datasets: Sequence[MultiLabelDataset],
        *,
        client: str | None = None,
        threshold: Given = None,
        device: str = "cpu",
    ) -> Report:
        """Return one report on all data sets together; raise UserError if their classes differ."""
        return self.judge(datasets, client=client, threshold=threshold, device=device)[0]

    def judge(
        self,
        datasets: Sequence[MultiLabelDataset],
        *,
        client: str | None = None,
        threshold: Given = None,
        device: str = "cpu",
    ) -> tuple[Report, Found]:
        """Return the report, and intervals and the quality of thresholds on these images.

        Args:
            datasets: with the run's classes; they are judged together.
            client: the client whose model to use, if each client has its own.
            threshold: a probability for all classes, or by class; default: the stored ones.
            device: where to compute.
        """
        for data in datasets:
            if data.classes != self.classes:
                raise UserError(
                    f"the run has the classes {', '.join(self.classes)}, the data have "
                    f"{', '.join(data.classes)}; give data with the same classes in the same order"
                )
        logits = torch.cat([self.models.logits(d.images, client, device).cpu() for d in datasets])
        labels = torch.cat([data.labels for data in datasets])
        known = torch.cat([data.known for data in datasets])
        entries, settings = self.decisions(client, threshold), self.evaluation
        thresholds = entries.get("thresholds", {}).get("classes", {})
        called = called_present(logits, settings, self.classes, thresholds)
        report = score(
            torch.sigmoid(logits),
            labels,
            known,
            self.classes,
            # A class that nobody annotated was not judged: it is no 0 in an average.
            zero_division=0.0 if bool(known.any(0).all()) else "skip",
            predicted=called,
        )
        images = LabelledImages.of(labels.numpy(), known.numpy(), _patients_of(datasets))
        quality = decision_quality(images, logits.numpy(), self.classes, entries, settings)
        intervals = model_intervals(images, logits.numpy(), called.numpy(), self.classes)
        return report, nan_to_none({**entries, "quality": quality, "intervals": intervals})

    def decisions(self, client: str | None, threshold: Given = None) -> Found:
        """Return the thresholds and the calibration of a model, with those set by hand."""
        stored = stored_decisions(self.models.card, GLOBAL if client is None else client)
        return with_given(stored, threshold, self.classes)

    @cached_property
    def scores(self) -> Scores:
        """Labels, mask and logits of the test images; UserError if the run kept none."""
        return read_scores(self.path)

    def keep_scores(self, test: MultiLabelDataset, *, device: str = "cpu") -> Path:
        """Score the run's test images again and write ``scores/test.npz``, whatever its size."""
        models: Sequence[str | None] = self.models.clients or (None,)
        logits = {
            GLOBAL if name is None else name: self.models.logits(test.images, name, device)
            for name in models
        }
        served = self.models.card.get("served", {}).get("round")
        rounds = len(self.history) if served is None else served
        scores = Scores.of(test, logits, part="test", round_count=rounds)
        return write_scores(self.path, scores)


def _patients_of(datasets: Sequence[MultiLabelDataset]) -> npt.NDArray[np.int64] | None:
    """Number the patients of all images; None if any data set does not know them."""
    names: list[str] = []
    for data in datasets:
        if data.groups is None:
            return None
        names += data.groups
    return np.unique(names, return_inverse=True)[1].astype(np.int64)


def read_run(path: str | Path, which: Which | None = None, *, own: Sequence[Any] = ()) -> Run:
    """Open a run folder; an unfinished run has no result, and the model of its last checkpoint.

    Args:
        path: the run folder.
        which: use the models of the ``best`` or the ``last`` round; default: those served.
        own: your own classes and functions that the run was made with, such as its network.
    """
    folder = RunFolder(Path(path))
    if not folder.path.is_dir():
        raise UserError(f"there is no run folder {path}")
    for thing in own:
        remember(thing)
    run = Run(folder, which)
    if not isinstance(run._stored, dict) or not {"data", "method"} <= run._stored.keys():
        raise UserError(f"{folder.recipe} is damaged: it is no recipe")
    return run
