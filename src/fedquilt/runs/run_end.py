"""RunEnd: fits decisions, tests the served models once, and writes a run's models and result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedquilt.core.tree import Weights
from fedquilt.engines.sequential import SequentialEngine
from fedquilt.metrics import nan_to_none
from fedquilt.metrics.own_metrics import Metrics
from fedquilt.recipes.recipe import Recipe
from fedquilt.runs.assessment import (
    GLOBAL,
    Assessment,
    SiteAssessment,
    SiteSamples,
    annotation_status,
    assess,
    model_logits,
    samples_by_site,
)
from fedquilt.runs.data_summary import missing_images, write_data_facts
from fedquilt.runs.fitted_decisions import (
    NOT_FITTED,
    Found,
    class_thresholds,
    decision_results,
    fit_decisions,
    store_decisions,
)
from fedquilt.runs.intervals import result_intervals, site_intervals
from fedquilt.runs.result_tables import write_result
from fedquilt.runs.run_folder import RunFolder
from fedquilt.runs.saved_models import save_models
from fedquilt.runs.scores import MAX_BYTES, Scores, logits_size, too_large, write_scores
from fedquilt.runs.served_models import ServedModels
from fedquilt.runs.simulation import Simulation
from fedquilt.runs.trained_images import write_trained_images
from fedquilt.runs.unlike_training import (
    ENTRY,
    FeaturesOf,
    false_alarms,
    fit_unlike_training,
    write_unlike_training,
)
from fedquilt.runs.validation import validation_scores


@dataclass(frozen=True)
class RunEnd:
    """What the end of a simulation needs."""

    recipe: Recipe
    folder: RunFolder
    simulation: Simulation
    engine: SequentialEngine
    observe: Callable[[str, dict[str, Any]], None]
    metrics: Metrics  # the user's own

    def write(
        self,
        served: ServedModels,
        history: Sequence[Mapping[str, Any]],
        further: Mapping[str, Any],
        before: Assessment | None,
    ) -> dict[str, Any]:
        """Write all files, and return the result.

        Args:
            served: the models to serve.
            history: a record of each round.
            further: entries of the result that only the run knows.
            before: of the served models, if they were evaluated already.
        """
        test, settings = self.simulation.splits.test, self.recipe.evaluation
        allocation, trained = self.simulation.allocation, len(history)
        clients = [holding.name for holding in allocation.holdings]
        sites = samples_by_site(test, self.recipe.partition, clients)
        fitted = self._fit(served)
        thresholds = class_thresholds(fitted)
        logits = self._test_logits(served.models) if before is None else before.logits.items()
        reports = {} if before is None else before.reports
        assessment = assess(
            logits, test, settings, sites, thresholds, before=reports, metrics=self.metrics
        )
        rounds = served.rounds.get(GLOBAL, trained)
        scores = Scores.of(test, assessment.logits, part="test", round_count=rounds)
        self._keep(scores)
        write_trained_images(
            self.folder.path, self.simulation.splits.train.images, allocation.holdings
        )
        save_models(self.folder, self.recipe, self.simulation.task, served.models, served)
        store_decisions(self.folder, fitted, self._fit_last(served, trained))
        unlike = self._unlike_training(served.models)
        write_data_facts(self.folder.path, self.recipe, self.simulation)
        result = {
            "method": self.recipe.to_dict()["method"]["name"],
            "seed": self.recipe.seed,
            "rounds": trained,
            "served": dict(served.facts),
            "recipe_hash": self.recipe.hash,
            "partition_hash": allocation.hash,
            **missing_images(self.simulation.splits),
            "metrics": assessment.averages,
            "spread_over_clients": assessment.spread,
            "reports": {name: report.to_dict() for name, report in assessment.reports.items()},
            "annotation_status": nan_to_none(annotation_status(assessment.reports, allocation)),
            **result_intervals(scores, settings, self.recipe.seed, thresholds),
            **_by_site(assessment.by_site, scores, sites),
            **decision_results(scores, fitted, settings),
            **unlike,
            "bytes_up": sum(record["bytes_up"] for record in history),
            "bytes_down": sum(record["bytes_down"] for record in history),
            "seconds": sum(record["seconds"] for record in history),
            **further,
        }
        write_result(self.folder.result, result)
        return result

    def _unlike_training(self, models: Mapping[str, Weights]) -> dict[str, Any]:
        """Store where the global model's training images lie; say how often test images are far."""
        if GLOBAL not in models:
            return {}
        simulation, workspace = self.simulation, self.engine.workspace
        holdings = simulation.allocation.holdings
        rows = torch.cat([each.for_training().indices for each in holdings]).unique()
        features_of = FeaturesOf(
            workspace.forward,
            models[GLOBAL],
            simulation.task,
            self.recipe.evaluation.batch_size,
            workspace.device,
        )
        found = fit_unlike_training(features_of, simulation.splits.train, rows)
        alarms = {}
        if found is not None:
            alarms["false_alarms"] = false_alarms(found, features_of, simulation.splits.test)
        write_unlike_training(self.folder, found, alarms)
        return {ENTRY: alarms} if alarms else {}

    def _fit(self, served: ServedModels) -> dict[str, Found]:
        """Fit thresholds and calibration of the served models, and keep what they are fitted on."""
        settings, scores = self.recipe.evaluation, None
        if self.simulation.validation:
            scores = self._validation_scores(served.models, served.rounds)
            self._keep(scores)
        elif settings.decisions.needs_validation:
            text = NOT_FITTED.format(threshold=settings.threshold)
            self.observe("notice", {"text": text})
        return self._fitted_on(scores, served.models, served.rounds)

    def _fit_last(self, served: ServedModels, trained: int) -> dict[str, Found]:
        """Fit those of the last round, where other models are served."""
        if not served.last or self.recipe.evaluation.decisions.is_default:
            return {}
        rounds = dict.fromkeys(served.last, trained)
        return self._fitted_on(self._validation_scores(served.last, rounds), served.last, rounds)

    def _fitted_on(
        self, scores: Scores | None, models: Mapping[str, Weights], rounds: Mapping[str, int]
    ) -> dict[str, Found]:
        settings, classes = self.recipe.evaluation, self.simulation.task.classes
        return fit_decisions(settings, classes, list(models), scores, self.recipe.min_cell, rounds)

    def _validation_scores(
        self, models: Mapping[str, Weights], rounds: Mapping[str, int]
    ) -> Scores:
        return validation_scores(self.simulation, self.engine, models, max(rounds.values()))

    def _keep(self, scores: Scores) -> None:
        """Write the logits, unless they are too large to be written unasked."""
        size = logits_size(len(scores), len(scores.classes), len(scores.logits))
        if size > MAX_BYTES:
            self.observe("notice", {"text": too_large(self.folder.path, size, scores.part)})
        else:
            write_scores(self.folder.path, scores)

    def _test_logits(self, models: Mapping[str, Weights]) -> Iterator[tuple[str, Tensor]]:
        images, task = self.simulation.splits.test.images, self.simulation.task
        return model_logits(models, self.engine, task, images, self.recipe.evaluation)


def _by_site(found: SiteAssessment | None, scores: Scores, sites: SiteSamples) -> dict[str, Any]:
    if found is None:
        return {}
    return {"by_site": found.to_dict() | site_intervals(scores, sites, found.model_of_sites())}
