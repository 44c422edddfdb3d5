"""Batch-norm statistics of the pooled images: variances are averaged as second moments."""

from __future__ import annotations

from dataclasses import dataclass

from fedquilt.core.payload import Update
from fedquilt.core.totals import Totals
from fedquilt.core.tree import Weights
from fedquilt.models.batch_statistics import second_moments, variances
from fedquilt.training.averaging import WeightedAveraging
from fedquilt.training.method import Local, State
from fedquilt.training.task import Task


@dataclass(frozen=True, kw_only=True)
class PooledStatisticsAveraging(WeightedAveraging):
    """The base of methods whose global batch-norm statistics are those of all clients' images."""

    pooled_variance: bool = True  # batch-norm variances of the pooled images, not the mean variance

    def _averaged(self, weights: Weights) -> Weights:
        return second_moments(weights) if self.pooled_variance else weights

    def expected_update(self, received: State, task: Task) -> Update:
        averaged = self._averaged(received["weights"])
        return super().expected_update({**received, "weights": averaged}, task)

    def weights_update(
        self,
        local: Local,
        weights: Weights,
        *,
        weight: float | None = None,
        received: Weights | None = None,
    ) -> Update:
        before = self._averaged(local.received["weights"] if received is None else received)
        after = self._averaged(weights)
        return super().weights_update(local, after, weight=weight, received=before)

    def update(self, server: State, totals: Totals) -> State:
        new = super().update({**server, "weights": self._averaged(server["weights"])}, totals)
        return {**new, "weights": variances(new["weights"])} if self.pooled_variance else new
