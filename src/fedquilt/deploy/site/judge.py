"""SiteJudge: what a site finds of a network on images that it does not train on."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedquilt.core.payload import Update
from fedquilt.core.tree import Weights
from fedquilt.data.client_data import ClientData
from fedquilt.deploy.shared_thresholds import at_site
from fedquilt.deploy.site.answers import RefusedRequest
from fedquilt.deploy.site.data import SiteData
from fedquilt.metrics.calibration import calibrator_from, sigmoid
from fedquilt.metrics.evaluation import Evaluation, called_present, predict_logits
from fedquilt.metrics.labelled_images import LabelledImages
from fedquilt.metrics.placements import Floats
from fedquilt.privacy import score_histograms, site_report
from fedquilt.privacy.site_policy import SitePolicy
from fedquilt.privacy.site_validation import (
    VALIDATION_PARTS,
    expected_validation,
    validation_parts,
)
from fedquilt.runs.assessment import GLOBAL
from fedquilt.runs.fitted_decisions import Found, fit_decisions
from fedquilt.runs.scores import Scores
from fedquilt.training.client import Workspace
from fedquilt.training.task import Task


class SiteJudge:
    """Judges networks on images that the site does not train on, within its policy."""

    def __init__(
        self,
        task: Task,
        workspace: Workspace,
        policy: SitePolicy,
        data: SiteData,
        evaluation: Evaluation,
    ) -> None:
        self._task, self._workspace, self._policy = task, workspace, policy
        self._validation, self._evaluation = data.validation, evaluation
        self._reported, self.on_test = reported_images(data)

    def validated(self, weights: Weights) -> Update:
        """Return the parts of a validated round; without images their weights are 0."""
        if not len(self._validation):
            return expected_validation(self._task.class_count)
        logits = self._logits(weights, self._validation)
        return validation_parts(logits, self._validation, self._policy.min_cell)

    def histograms(self, weights: Weights) -> Update:
        """Return the histograms of the scores of the validation images."""
        data = self._validation
        part = score_histograms.score_histograms(
            self._logits(weights, data).numpy(),
            data.labels.cpu().numpy(),
            data.known.cpu().numpy(),
            None if data.patients is None else data.patients.numpy(),
            self._policy.min_cell,
        )
        return {score_histograms.PART: part}

    def decisions(self, weights: Weights, shared: Found, rounds: int) -> Found:
        """Return the model's thresholds and calibration here.

        They are the study's, and for other classes those fitted on this site's validation images.
        """
        settings, data = self._evaluation, self._validation
        scores = None
        if len(data):
            scores = Scores(
                part="validation",
                round=rounds,
                classes=self._task.classes,
                ids=tuple(map(str, range(len(data)))),
                labels=data.labels.cpu().numpy(),
                known=data.known.cpu().numpy(),
                logits={GLOBAL: self._logits(weights, data).numpy()},
                patients=None if data.patients is None else data.patients.numpy(),
            )
        found = fit_decisions(settings, self._task.classes, [GLOBAL], scores)
        return at_site(shared, found.get(GLOBAL, {}))

    def report(self, weights: Weights, shared: Found) -> Update:
        """Return what the model is worth on the site's test images, at the study's thresholds."""
        data, classes = self._reported, self._task.classes
        logits = self._logits(weights, data)
        present = called_present(logits, self._evaluation, classes, shared["thresholds"])
        part = site_report.site_report(
            LabelledImages.of(
                data.labels.cpu().numpy(),
                data.known.cpu().numpy(),
                None if data.patients is None else data.patients.numpy(),
            ),
            logits.numpy(),
            _probabilities(logits.numpy(), shared["calibration"], classes),
            present.numpy(),
            on_test=self.on_test,
            min_cell=self._policy.min_cell,
            min_cell_errors=self._policy.min_cell_errors,
        )
        return {site_report.PART: part}

    def require_allowed(self, *parts: str) -> None:
        """Raise RefusedRequest if the policy does not let one of these parts leave.

        The site then takes part without it.
        """
        for part in parts:
            refusal = self._policy.refuses_part(part)
            if refusal:
                raise RefusedRequest(refusal)

    def require_validation_allowed(self) -> None:
        self.require_allowed(*VALIDATION_PARTS)

    def _logits(self, weights: Weights, data: ClientData) -> Tensor:
        if not len(data):
            return torch.empty(0, self._task.class_count)
        return predict_logits(
            self._workspace.forward,
            weights,
            data.images[data.indices],
            self._task,
            batch_size=self._workspace.prediction_batch,
            device=self._workspace.device,
        ).cpu()


def reported_images(data: SiteData) -> tuple[ClientData, bool]:
    """Return the images that the final model is judged on, and whether they are for testing."""
    if data.test is not None and len(data.test):
        return data.test, True
    return data.validation, False


def _probabilities(
    logits: npt.NDArray[np.floating], calibration: Found, classes: tuple[str, ...]
) -> Floats:
    """Return (N, C) probabilities, calibrated where the study is."""
    found: Floats = sigmoid(logits.astype(np.float64))
    for column, name in enumerate(classes):
        line = calibrator_from(calibration.get(name, {}))
        if line is not None:
            found[:, column] = line.probabilities(logits[:, column].astype(np.float64))
    return found
