"""SiteJudge: what a site finds of a network on images that it does not train on."""

from __future__ import annotations

from torch import Tensor

from fedquilt.core.payload import Update
from fedquilt.core.tree import Weights
from fedquilt.data.client_data import ClientData
from fedquilt.deploy.site.answers import RefusedRequest
from fedquilt.metrics.evaluation import predict_logits
from fedquilt.privacy.site_policy import SitePolicy
from fedquilt.privacy.site_validation import (
    VALIDATION_PARTS,
    expected_validation,
    validation_parts,
)
from fedquilt.training.client import Workspace
from fedquilt.training.task import Task


class SiteJudge:
    """Judges networks on the site's validation images, within its policy."""

    def __init__(
        self, task: Task, workspace: Workspace, policy: SitePolicy, validation: ClientData
    ) -> None:
        self._task, self._workspace, self._policy = task, workspace, policy
        self._validation = validation

    def validated(self, weights: Weights) -> Update:
        """Return the parts of a validated round; without images their weights are 0."""
        if not len(self._validation):
            return expected_validation(self._task.class_count)
        logits = self._logits(weights, self._validation)
        return validation_parts(logits, self._validation, self._policy.min_cell)

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
        return predict_logits(
            self._workspace.forward,
            weights,
            data.images[data.indices],
            self._task,
            batch_size=self._workspace.prediction_batch,
            device=self._workspace.device,
        )
