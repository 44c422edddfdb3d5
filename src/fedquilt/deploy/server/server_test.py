"""ServerTest: the study's model on the images of the server, if it has any."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedquilt.deploy.study import Study
from fedquilt.metrics import Report, nan_to_none
from fedquilt.metrics.evaluation import called_present, predict_logits, report_on
from fedquilt.runs.assessment import GLOBAL
from fedquilt.runs.fitted_decisions import Found, class_thresholds, decision_results
from fedquilt.runs.intervals import result_intervals
from fedquilt.runs.round_recorder import RoundMetrics
from fedquilt.runs.scores import MAX_BYTES, Scores, logits_size, too_large, write_scores
from fedquilt.training.client import Workspace
from fedquilt.training.method import State

NOTHING: Found = {}  # no thresholds and no calibration are fitted


class ServerTest:
    """The test part of the recipe's data; all answers are None or empty without one."""

    def __init__(self, study: Study, cache: Path) -> None:
        self._study, self._test, self._workspace = study, None, None
        if study.evaluate_on_server:
            self._test = study.recipe.data.load(cache).test
            self._workspace = Workspace.of(study.task, torch.device("cpu"))

    def logits(self, server: State) -> Tensor | None:
        """Return the logits (N, C) of the images; None without images or a global model."""
        recipe = self._study.recipe
        weights = recipe.method.global_weights(server)
        if self._test is None or self._workspace is None or weights is None:
            return None
        return predict_logits(
            self._workspace.forward,
            weights,
            self._test.images,
            self._study.task,
            batch_size=recipe.evaluation.batch_size,
            device=self._workspace.device,
        )

    def report(self, logits: Tensor | None, fitted: Found = NOTHING) -> Report | None:
        if self._test is None or logits is None:
            return None
        settings, test, called = self._study.recipe.evaluation, self._test, None
        if "thresholds" in fitted:
            thresholds = fitted["thresholds"]["classes"]
            called = called_present(logits, settings, test.classes, thresholds)
        return report_on(torch.sigmoid(logits), test, settings, called)

    def evaluate(self, server: State) -> RoundMetrics | None:
        report = self.report(self.logits(server))
        if report is None:
            return None
        per_class = dict(zip(report.classes, report.per_class["auc"]))
        return RoundMetrics(nan_to_none(dict(report.averages)), nan_to_none(per_class))

    def intervals(
        self,
        logits: Tensor | None,
        rounds: int,
        folder: Path,
        notice: Callable[[str], None],
        fitted: Found = NOTHING,
    ) -> dict[str, Any]:
        """Return the intervals for the result, and keep the scores they are computed from."""
        if self._test is None or logits is None:
            return {}
        recipe = self._study.recipe
        scores = Scores.of(self._test, {GLOBAL: logits}, part="test", round_count=rounds)
        size = logits_size(len(logits), len(self._study.classes), models=1)
        if size > MAX_BYTES:
            notice(too_large(folder, size))
        else:
            write_scores(folder, scores)
        models = {GLOBAL: fitted} if fitted else {}
        quality = decision_results(scores, models, recipe.evaluation)
        thresholds = class_thresholds(models)
        return result_intervals(scores, recipe.evaluation, recipe.seed, thresholds) | quality
