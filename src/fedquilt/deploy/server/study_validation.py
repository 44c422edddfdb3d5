"""StudyValidation: the server's part of validating rounds, whose images stay at the sites."""

from __future__ import annotations

from functools import partial
from typing import Any

from fedquilt.deploy.server.remote_engine import RemoteEngine
from fedquilt.deploy.server.unannotated_rows import annotated_by
from fedquilt.deploy.study import Study
from fedquilt.privacy.site_validation import (
    ValidationCheck,
    expected_validation,
    validation_result,
)
from fedquilt.runs.assessment import GLOBAL
from fedquilt.runs.round_recorder import RoundValidation
from fedquilt.training.method import State


class StudyValidation:
    """Asks the sites what a round's global model is worth on their validation images.

    Where every site has its own model, each chooses its own round and nothing is asked.
    """

    def __init__(self, study: Study, engine: RemoteEngine) -> None:
        self._study, self._engine = study, engine
        self._check = ValidationCheck(partial(annotated_by, study), study.classes)

    def validate(self, server: State, rounds: int) -> RoundValidation | None:
        """Return what the sites found of the model after ``rounds`` rounds.

        The record names the sites: rounds are compared only if the same ones have judged them.
        """
        method, classes = self._study.recipe.method, self._study.classes
        weights = method.global_weights(server)
        if not self._study.validates_at_sites or weights is None:
            return None
        expected = expected_validation(len(classes))
        totals = self._engine.validate(method.broadcast(server), rounds, expected, self._check)
        facts: dict[str, Any] = {
            "site_auc": None,
            "loss": None,
            "per_class_auc": dict.fromkeys(classes),
        }
        if totals is not None:
            facts = validation_result(totals, classes)
        facts["sites"] = [] if totals is None else sorted(totals.cohort)
        facts["missing"] = self._engine.last_validation.missing
        return RoundValidation(facts, {GLOBAL: weights}, server)
